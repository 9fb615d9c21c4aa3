"""One timer for the time limits of all running handlers, and for the end of the trust window.

A start only compares its deadline with the time the timer is set for. When the timer fires, all
runs are checked (a few hundred at most). That costs less than a timer or a heap entry per job,
since nearly every job ends long before its deadline.
"""

import asyncio
from typing import TYPE_CHECKING

from .run import NEVER, RunState, StopReason

if TYPE_CHECKING:
    from .in_flight import InFlightJobs


class Deadlines:
    """Interrupts handlers whose time is up. Everything happens on the job loop."""

    __slots__ = ("_in_flight", "_loop", "_set_for", "_timer")

    def __init__(self, in_flight: "InFlightJobs", loop: asyncio.AbstractEventLoop) -> None:
        self._in_flight = in_flight
        self._loop = loop
        self._set_for = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, at: float) -> None:
        """Check no later than at that time."""
        if at >= self._set_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set_for = at
        self._timer = self._loop.call_later(max(0.0, at - self._in_flight.mono()), self.check)

    def check(self) -> None:
        """Interrupt what is overdue and set the timer for the next deadline."""
        in_flight = self._in_flight
        now, trust_until = in_flight.mono(), in_flight.lease_state.trust_until
        self._set_for, self._timer = NEVER, None
        following = NEVER
        for run in list(in_flight.held.values()):
            if run.state is not RunState.RUNNING or run.stop is not None:
                continue
            if run.deadline <= now:
                in_flight.interrupt(run, StopReason.TIMEOUT)
                continue
            following = min(following, run.deadline)
            if run.job.limit_key is not None:
                # Without trust another process may hold the limit: limited work must not continue.
                if trust_until <= now:
                    in_flight.interrupt(run, StopReason.LOST)
                else:
                    following = min(following, trust_until)
        if following != NEVER:
            self.arm(following)

    def close(self) -> None:
        """Stop the timer for good."""
        if self._timer is not None:
            self._timer.cancel()
        self._set_for, self._timer = -NEVER, None
