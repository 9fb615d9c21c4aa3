"""How a process goes: stop claiming, hand back, wait, write, release the rest, leave.

Everyone is told first and waited for afterwards. Each step has its own limit, so that the whole
takes no longer than the grace and two seconds even when the store never answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from forge_jobs.kit.clock import Clock

from .floor import Floor
from .membership import Membership
from .pump import Pump
from .run import Stop
from .services.lead import Leadership

_LOG = logging.getLogger("forge_jobs.worker")
_LOOK_S = 0.01
_FLUSH_S = 0.3
_END_S = 0.4
_TELLINGS = 4
_PARTS_S = 0.2
_LEAVE_S = 0.3
_YIELD_S = 0.1
_PASS_ON_S = 0.2


class Leaving:
    """The last minutes of a process."""

    def __init__(
        self,
        floor: Floor,
        pump: Pump,
        member: Membership,
        leadership: Leadership,
        *,
        pass_on: Callable[[], Awaitable[object]],
        clock: Clock,
        grace_s: float,
    ) -> None:
        self._floor = floor
        self._pump = pump
        self._member = member
        self._leadership = leadership
        self._pass_on = pass_on
        self._clock = clock
        self._grace_s = grace_s

    async def wind_down(self) -> None:
        """Everything that can still be written is written; the pump runs on meanwhile."""
        floor = self._floor
        self._pump.claiming = False
        floor.is_open = False
        floor.hand_back_ready()
        await self._until(lambda: floor.running == 0, self._grace_s)
        await self._until(lambda: floor.outbox.is_empty, _FLUSH_S)
        if floor.running:
            _LOG.info("handing back what still runs", extra={"running": floor.running})
            for _ in range(_TELLINGS):
                # A handler may swallow the first cancellation while it tidies up.
                floor.interrupt_all(Stop.SHUTDOWN)
                await self._until(lambda: floor.running == 0, _END_S / _TELLINGS)
            await self._until(lambda: floor.outbox.is_empty, _FLUSH_S)

    async def go(self, ends: "Sequence[asyncio.Future[None]]") -> None:
        """Wait for the parts (already told to end), close, leave, give up the lead."""
        _, late = await asyncio.wait(ends, timeout=_PARTS_S)
        for end in late:
            end.cancel()
        # First, so that nothing of ours runs beside its next run elsewhere.
        await self._floor.places.close()
        # Leaving releases whatever the process still owns; without it the reaper does that.
        await self._bounded(self._member.leave(), _LEAVE_S)
        await self._bounded(self._leadership.give_up(), _YIELD_S)
        # The others need not wait for the next round to get our slots.
        await self._bounded(self._pass_on(), _PASS_ON_S)

    async def _until(self, is_so: Callable[[], bool], limit_s: float) -> None:
        end = self._clock.mono() + limit_s
        while not is_so() and self._clock.mono() < end:
            await self._clock.sleep(_LOOK_S)

    async def _bounded(self, call: Awaitable[object], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await call
        except Exception as error:
            _LOG.warning("the store did not hear our leaving", extra={"error": repr(error)})
