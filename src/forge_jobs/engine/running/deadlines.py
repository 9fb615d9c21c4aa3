"""One timer for all deadlines of running handlers, and for the end of the lease.

A start only compares its deadline with the moment the timer is set for. When the timer goes off
all runs are looked at (a few hundred at most), which costs less than a timer or a heap entry per
job, since nearly every job ends long before its deadline.
"""

import asyncio
from typing import Protocol

from forge_jobs.engine.liveness.lease_state import LeaseState

from .run import NEVER, Run, RunState, StopReason


class DeadlineHost(Protocol):
    """What the watch looks at."""

    held: dict[int, Run]
    standing: LeaseState

    def mono(self) -> float:
        """The clock of the deadlines."""
        ...

    def interrupt(self, run: Run, stop: StopReason) -> None:
        """Tell a handler to end."""
        ...


class Deadlines:
    """Ends handlers whose time is up. Everything happens on the job loop."""

    __slots__ = ("_floor", "_loop", "_set_for", "_timer")

    def __init__(self, floor: DeadlineHost, loop: asyncio.AbstractEventLoop) -> None:
        self._floor = floor
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
        self._timer = self._loop.call_later(max(0.0, at - self._floor.mono()), self.look)

    def look(self) -> None:
        """End what is overdue and set the timer for the next deadline."""
        floor = self._floor
        now, trust_until = floor.mono(), floor.standing.trust_until
        self._set_for, self._timer = NEVER, None
        following = NEVER
        for run in list(floor.held.values()):
            if run.state is not RunState.RUNNING or run.stop is not None:
                continue
            if run.deadline <= now:
                floor.interrupt(run, StopReason.TIMEOUT)
                continue
            following = min(following, run.deadline)
            if run.job.limit_key is not None:
                # Another process may hold the limit by now: exclusive work must not go on.
                if trust_until <= now:
                    floor.interrupt(run, StopReason.LOST)
                else:
                    following = min(following, trust_until)
        if following != NEVER:
            self.arm(following)

    def close(self) -> None:
        """No more looks."""
        if self._timer is not None:
            self._timer.cancel()
        self._set_for, self._timer = -NEVER, None
