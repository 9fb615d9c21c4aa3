"""One queue inside this process: its slots, what it may start, what is claimed and waits.

A *unit* is the right to run one job of the lane. ``busy`` counts the units that are out; a slot of
the loop that holds a unit keeps it from one job to the next.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from forge_jobs.core.job import Claim
from forge_jobs.core.retry import Backoff
from forge_jobs.engine.running.run import Run, RunState
from forge_jobs.store.jobs import Want

from .finish_buffer import FinishBuffer
from .prefetch import Prefetch
from .wake_signal import WakeSignal

if TYPE_CHECKING:
    from forge_jobs.engine.running.in_flight import InFlightJobs

    from .local_queues import LocalQueues

_CAREFUL_S = 30.0


class LocalQueue:
    """The local share of a queue."""

    __slots__ = (
        "_asked", "_begin", "_call_slot", "_call_soon", "_careful_until", "_finish_buffer",
        "_local_queues", "_may_start", "_wake", "backoff", "busy", "hungry", "name", "pace",
        "pouring", "ready", "target", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        local_queues: "LocalQueues",
        in_flight: "InFlightJobs",
        finish_buffer: FinishBuffer,
        wake: WakeSignal,
        loop: asyncio.AbstractEventLoop,
        *,
        now: float,
        backoff: Backoff,
    ) -> None:
        self.name = name
        self.target = 0
        self.busy = 0
        self.ready: deque[Run] = deque()
        self.backoff = backoff
        self.pace = Prefetch(now)
        self.hungry = True
        self.pouring = False
        self.wanted = 0
        # Bound once: both are called for every job.
        self._may_start = local_queues.may_start
        self._begin = in_flight.begin
        self._call_slot = in_flight.executors.loop.wake
        self._call_soon = loop.call_soon
        self._local_queues = local_queues
        self._finish_buffer = finish_buffer
        self._wake = wake
        self._careful_until = -1.0
        self._asked = 0

    def want(self, now: float, *, prefetch_s: float, most: int) -> Want | None:
        """What to ask the store for; None when there is no room. Remembers how much it was."""
        self.wanted = self._asked = 0
        waiting = len(self.ready)
        free = self.target - self.busy - waiting
        if self.target <= 0:
            return None
        self.pace.look(now, backlog=waiting > 0)
        ahead = 0
        if now >= self._careful_until:
            ahead = self.pace.ahead(prefetch_s, self.target)
        room = min(free + ahead, most)
        if room <= 0:
            return None
        self.wanted = self._asked = room
        start = min(max(free, 0), room)
        return Want(self.name, start, room - start)

    @property
    def has_room(self) -> bool:
        """Whether a job could start at once if there were one."""
        return self.target > self.busy + len(self.ready)

    @property
    def runs_low(self) -> bool:
        """Whether most of what was claimed last has been started."""
        return self.hungry and 2 * len(self.ready) < self._asked

    def be_careful(self, now: float) -> None:
        """A job with a limit, or one that saw its worker die, came along.

        Nothing is claimed ahead for a while: limits count from the claim, and of a job that kills
        its worker the store must know that it had started.
        """
        self._careful_until = now + _CAREFUL_S

    def hand_back_ahead(self) -> None:
        """What was claimed ahead goes back."""
        ahead = [run for run in self.ready if not run.job.started]
        self.ready = deque(run for run in self.ready if run.job.started)
        for run in ahead:
            self._hand_back(run)

    def pull(self, now: float) -> Run | None:
        """The next run for a slot of the loop that holds a unit; None: the unit is gone."""
        ready, may_start, begin = self.ready, self._may_start, self._begin
        while ready and self.busy <= self.target and may_start(now):
            run = ready.popleft()
            begin(run, now)
            launch = run.launch
            if launch is None:
                return run
            launch(run)
            if self.busy >= self.target:
                return None
            self.busy += 1
        self.busy -= 1
        self._wake.notify()
        return None

    def pour(self, now: float) -> None:
        """Start what can be started.

        Of jobs for the loop only the first gets a slot right away: handlers that never wait are
        all run by that one slot, and waking the others would cost more than the jobs.
        """
        ready, may_start = self.ready, self._may_start
        while ready and self.busy < self.target and may_start(now):
            launch = ready[0].launch
            if launch is None:
                self.busy += 1
                self._call_slot(self)
                if len(ready) > 1 and not self.pouring:
                    self.pouring = True
                    self._call_soon(self.pour_all, now)
                return
            run = ready.popleft()
            self.busy += 1
            self._begin(run, now)
            launch(run)

    def pour_all(self, now: float) -> None:
        """Call a slot for every job that can start: the first ones are waiting for something."""
        self.pouring = False
        ready, may_start = self.ready, self._may_start
        called = 0
        while called < len(ready) and self.busy < self.target and may_start(now):
            self.busy += 1
            called += 1
            self._call_slot(self)

    def free_unit(self, run: Run, now: float) -> None:
        """The unit of a run that has ended is free: at once, or after the verdict."""
        if run.unit and run.state is RunState.ENDED:
            return
        self.busy -= 1
        if self.ready:
            self.pour(now)
        else:
            self._wake.notify()

    def remove(self, run: Run) -> None:
        """A run that has not started never will."""
        self.ready.remove(run)
        run.state = RunState.ENDED

    def retarget(self, slots: int) -> None:
        """Follow a new number of slots: running jobs finish, claimed ones beyond it go back."""
        shrunk = slots < self.target
        self.target = slots
        while shrunk and len(self.ready) > max(0, slots - self.busy):
            self._hand_back(self.ready.pop())

    def hand_back_all(self) -> None:
        """Everything that has not started goes back."""
        while self.ready:
            self._hand_back(self.ready.popleft())

    def hand_back_of(self, scope: str) -> None:
        """What declares this throttle scope and has not started goes back."""
        hit = [run for run in self.ready if scope in run.handler.scopes]
        if hit:
            self.ready = deque(run for run in self.ready if scope not in run.handler.scopes)
            for run in hit:
                self._hand_back(run)

    def hand_back_throttled(self, scope: str | None) -> None:
        """What has not started and would meet the same limiter goes back: of this queue, or with
        a scope whatever declares it."""
        if scope is None:
            self.hand_back_all()
        else:
            self._local_queues.hand_back_of(scope)

    def hand_back_older(self, than: float) -> None:
        """What was claimed by that moment and has not started goes back."""
        self.pace.forget()
        while self.ready and self.ready[0].claimed_at <= than:
            self._hand_back(self.ready.popleft())

    def _hand_back(self, run: Run) -> None:
        run.state = RunState.ENDED
        self._finish_buffer.release(Claim(run.job.key, run.job.epoch))
