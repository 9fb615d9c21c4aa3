"""How a process goes: stop claiming, hand back, wait, write, release the rest, leave.

Everyone is told first and waited for afterwards. Each step has to be over by its mark, counted from
the end of the grace: with the usual ``shutdown_s`` the whole takes no longer than the grace and two
seconds even when the store never answers, and what an early step leaves unused is there for a slow
store later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from forge_jobs.engine.claiming.finish_buffer import FinishBuffer
from forge_jobs.engine.claiming.local_queues import LocalQueues
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.run import StopReason
from forge_jobs.engine.services.leadership import Leadership
from forge_jobs.kit.clock import Clock

from .registration import Registration

_LOG = logging.getLogger("forge_jobs.worker")
_LOOK_S = 0.01
_TELLINGS = 4
_TELLING_S = 0.1
# Parts of ``shutdown_s``, counted from the end of the grace, after which each step is over.
_FLUSHED = 0.15
_HANDED_BACK = 0.55
_PARTS_ENDED = 0.6
_LEFT = 0.88
_YIELDED = 0.94
_PASSED_ON = 1.0
# Closing the places may take longer than planned; even then the store is told.
_LEAST_S = 0.2


class Shutdown:
    """The last minutes of a process."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        local_queues: LocalQueues,
        finish_buffer: FinishBuffer,
        member: Registration,
        leadership: Leadership,
        *,
        pass_on: Callable[[], Awaitable[object]],
        clock: Clock,
        grace_s: float,
        shutdown_s: float,
    ) -> None:
        self._in_flight = in_flight
        self._local_queues = local_queues
        self._finish_buffer = finish_buffer
        self._member = member
        self._leadership = leadership
        self._pass_on = pass_on
        self._clock = clock
        self._grace_s = grace_s
        self._shutdown_s = shutdown_s
        self._grace_over = clock.mono()

    async def wind_down(self) -> None:
        """Everything that can still be written is written; the pump runs on meanwhile."""
        in_flight, finish_buffer = self._in_flight, self._finish_buffer
        self._local_queues.close()
        self._local_queues.hand_back_all()
        try:
            await self._until(lambda: in_flight.running == 0, self._clock.mono() + self._grace_s)
        finally:
            self._grace_over = self._clock.mono()
        flushed = _FLUSHED if in_flight.running else _HANDED_BACK
        await self._until(lambda: finish_buffer.is_empty, self._end_of(flushed))
        if in_flight.running:
            _LOG.info("handing back what still runs", extra={"running": in_flight.running})
            for _ in range(_TELLINGS):
                # A handler may swallow the first cancellation while it tidies up.
                in_flight.interrupt_all(StopReason.SHUTDOWN)
                await self._until(lambda: in_flight.running == 0, self._clock.mono() + _TELLING_S)
            await self._until(lambda: finish_buffer.is_empty, self._end_of(_HANDED_BACK))

    async def go(self, ends: "Sequence[asyncio.Future[None]]") -> None:
        """Wait for the parts (already told to end), close, leave, give up the lead."""
        _, late = await asyncio.wait(ends, timeout=self._left_s(_PARTS_ENDED))
        for end in late:
            end.cancel()
        # First, so that nothing of ours runs beside its next run elsewhere.
        await self._in_flight.executors.close()
        # Leaving releases whatever the process still owns; without it the reaper does that.
        await self._bounded(self._member.leave(), _LEFT)
        await self._bounded(self._leadership.give_up(), _YIELDED)
        # The others need not wait for the next round to get our slots.
        await self._bounded(self._pass_on(), _PASSED_ON)

    def _end_of(self, mark: float) -> float:
        return self._grace_over + mark * self._shutdown_s

    def _left_s(self, mark: float) -> float:
        return max(0.0, self._end_of(mark) - self._clock.mono())

    async def _until(self, is_so: Callable[[], bool], end: float) -> None:
        while not is_so() and self._clock.mono() < end:
            await self._clock.sleep(_LOOK_S)

    async def _bounded(self, call: Awaitable[object], mark: float) -> None:
        try:
            async with asyncio.timeout(max(_LEAST_S, self._left_s(mark))):
                await call
        except Exception as error:
            _LOG.warning("the store did not hear our leaving", extra={"error": repr(error)})
