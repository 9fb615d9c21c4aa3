"""One timer for all deadlines of running handlers, and for the end of the lease.

A start only compares its deadline with the moment the timer is set for. When the timer goes off
all runs are looked at (a few hundred at most), which costs less than a timer or a heap entry per
job, since nearly every job ends long before its deadline.
"""

import asyncio
from typing import TYPE_CHECKING

from .run import NEVER, RunState, StopReason

if TYPE_CHECKING:
    from .in_flight import InFlightJobs


class Deadlines:
    """Ends handlers whose time is up. Everything happens on the job loop."""

    __slots__ = ("_in_flight", "_loop", "_set_for", "_timer")

    def __init__(self, in_flight: "InFlightJobs", loop: asyncio.AbstractEventLoop) -> None:
        self._in_flight = in_flight
        self._loop = loop
        self._set_for = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, at: float) -> None:
        """Look no later than at that moment."""
        if at >= self._set_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set_for = at
        self._timer = self._loop.call_later(max(0.0, at - self._in_flight.mono()), self.look)

    def look(self) -> None:
        """End what is overdue and set the timer for the next deadline."""
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
                # Another process may hold the limit by now: exclusive work must not go on.
                if trust_until <= now:
                    in_flight.interrupt(run, StopReason.LOST)
                else:
                    following = min(following, trust_until)
        if following != NEVER:
            self.arm(following)

    def close(self) -> None:
        """No more looks."""
        if self._timer is not None:
            self._timer.cancel()
        self._set_for, self._timer = -NEVER, None
