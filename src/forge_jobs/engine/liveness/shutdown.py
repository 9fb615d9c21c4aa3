"""Shuts a process down: stop claiming, release, wait, write, release the rest, deregister.

All tasks are cancelled first and waited for afterwards. Each step has a time by which it must be
over, counted from the end of the grace period. With the usual ``shutdown_s`` the whole takes no
longer than the grace period and two seconds, even when the store never answers; time that an early
step leaves unused goes to the later ones.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from forge_jobs.engine.claiming.local_queues import LocalQueues
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.run import StopReason
from forge_jobs.engine.services.leadership import Leadership
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.log import log_facts

from .registration import Registration

_LOG = logging.getLogger("forge_jobs.worker")
_POLL_S = 0.01
_MAX_INTERRUPTS = 4
_INTERRUPT_S = 0.1
# Fractions of ``shutdown_s``, counted from the end of the grace period, by which a step is over.
_FLUSHED_BY = 0.15
_RELEASED_BY = 0.55
_TASKS_ENDED_BY = 0.6
_DEREGISTERED_BY = 0.88
_LEAD_RELEASED_BY = 0.94
_SLOTS_SHARED_BY = 1.0
# Closing the executors may take longer than planned; even then the store is called.
_MIN_CALL_S = 0.2


class Shutdown:
    """One shutdown of one process."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        local_queues: LocalQueues,
        registration: Registration,
        leadership: Leadership,
        *,
        share_slots: Callable[[], Awaitable[object]],
        clock: Clock,
        grace_s: float,
        shutdown_s: float,
    ) -> None:
        self._in_flight = in_flight
        self._local_queues = local_queues
        self._registration = registration
        self._leadership = leadership
        self._share_slots = share_slots
        self._clock = clock
        self._grace_s = grace_s
        self._shutdown_s = shutdown_s
        self._grace_ended_at = clock.mono()
        self._grace_is_over = False

    def end_grace(self) -> None:
        """Give running jobs no more time: they are interrupted and released now."""
        self._grace_is_over = True

    async def wind_down(self) -> None:
        """Release, wait and write what can be written; the exchange loop still runs meanwhile."""
        in_flight = self._in_flight
        self._local_queues.close()
        self._local_queues.release_all()
        try:
            await self._until(
                lambda: in_flight.running == 0 or self._grace_is_over,
                self._clock.mono() + self._grace_s,
            )
        finally:
            self._grace_ended_at = self._clock.mono()
        flushed_by = _FLUSHED_BY if in_flight.running else _RELEASED_BY
        await self._until(lambda: in_flight.is_written, self._at_fraction(flushed_by))
        if in_flight.running:
            log_facts(_LOG, logging.INFO, "releasing what still runs", running=in_flight.running)
            for _ in range(_MAX_INTERRUPTS):
                # A handler may swallow the first cancellation while it cleans up.
                in_flight.interrupt_all(StopReason.SHUTDOWN)
                await self._until(lambda: in_flight.running == 0, self._clock.mono() + _INTERRUPT_S)
            await self._until(lambda: in_flight.is_written, self._at_fraction(_RELEASED_BY))

    async def leave(self, tasks: "Sequence[asyncio.Future[None]]") -> None:
        """Wait for the cancelled tasks, close the executors, deregister, release the leadership."""
        _, late = await asyncio.wait(tasks, timeout=self._left_s(_TASKS_ENDED_BY))
        for end in late:
            end.cancel()
        # First, so that no job still runs here when it starts elsewhere.
        await self._in_flight.executors.close()
        # Deregistering releases what the process still owns; without it the reaper does that.
        await self._bounded(self._registration.deregister(), _DEREGISTERED_BY)
        await self._bounded(self._leadership.release(), _LEAD_RELEASED_BY)
        # So that other processes get our slots before the next rebalance.
        await self._bounded(self._share_slots(), _SLOTS_SHARED_BY)

    def _at_fraction(self, fraction: float) -> float:
        return self._grace_ended_at + fraction * self._shutdown_s

    def _left_s(self, fraction: float) -> float:
        return max(0.0, self._at_fraction(fraction) - self._clock.mono())

    async def _until(self, condition: Callable[[], bool], end: float) -> None:
        while not condition() and self._clock.mono() < end:
            await self._clock.sleep(_POLL_S)

    async def _bounded(self, call: Awaitable[object], fraction: float) -> None:
        try:
            async with asyncio.timeout(max(_MIN_CALL_S, self._left_s(fraction))):
                await call
        except Exception as error:
            text = "the store did not answer during the shutdown"
            log_facts(_LOG, logging.WARNING, text, error=repr(error))
