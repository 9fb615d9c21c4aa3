"""One queue inside this process: its slots, and its claims that have not started.

``slots`` is how many jobs of the queue may run here at once; ``busy`` counts the slots in use. A
slot task of the loop executor keeps its slot from one job to the next.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
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

_NO_PREFETCH_S = 30.0
# Not a name that a kind can have.
_NO_KIND = ("-",)


class LocalQueue:
    """The share of a queue in this process.

    ``ready`` holds the claims that wait for a slot. ``expects_jobs``: the store may have more.
    ``want_left``: how many jobs of the last want have not come.
    """

    __slots__ = (
        "_begin", "_call_soon", "_finish_buffer", "_kinds", "_last_want", "_left_to_others",
        "_local_queues", "_may_start", "_no_prefetch_until", "_wake", "_wake_slot", "backoff",
        "busy", "expects_jobs", "is_start_scheduled", "name", "prefetch", "ready", "slots",
        "want_left",
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
        kinds: Callable[[], Iterable[str]],
    ) -> None:
        self.name = name
        self.slots = 0
        self.busy = 0
        self.ready: deque[Run] = deque()
        self.backoff = backoff
        self.prefetch = Prefetch(now)
        self.expects_jobs = True
        self.is_start_scheduled = False
        self.want_left = 0
        # Bound methods: the first two are called for every job.
        self._may_start = local_queues.may_start
        self._begin = in_flight.begin
        self._wake_slot = in_flight.executors.loop.wake
        self._call_soon = loop.call_soon
        self._local_queues = local_queues
        self._finish_buffer = finish_buffer
        self._wake = wake
        self._no_prefetch_until = -1.0
        self._last_want = 0
        self._kinds = kinds
        self._left_to_others: dict[str, float] | None = None

    def want(self, now: float, *, prefetch_s: float, max_jobs: int) -> Want | None:
        """How many jobs to claim, for free slots and prefetched; None when there is no room."""
        self.want_left = self._last_want = 0
        waiting = len(self.ready)
        free = self.slots - self.busy - waiting
        if self.slots <= 0:
            return None
        self.prefetch.update(now, backlog=waiting > 0)
        prefetch_limit = 0
        if now >= self._no_prefetch_until:
            prefetch_limit = self.prefetch.limit(prefetch_s, self.slots)
        room = min(free + prefetch_limit, max_jobs)
        if room <= 0:
            return None
        self.want_left = self._last_want = room
        start = min(max(free, 0), room)
        if self._left_to_others is None:
            return Want(self.name, start, room - start)
        return Want(self.name, start, room - start, self._kinds_to_claim(now))

    @property
    def has_room(self) -> bool:
        """Whether a newly claimed job could start at once."""
        return self.slots > self.busy + len(self.ready)

    @property
    def runs_low(self) -> bool:
        """Whether more than half of the last claims have started."""
        return self.expects_jobs and 2 * len(self.ready) < self._last_want

    def leave_to_others(self, kind: str, now: float, span_s: float) -> None:
        """Claim no job of this kind for ``span_s`` if all jobs of the last claim were refused, less
        if only some were: a worker that can run them is alive, and must not compete for them."""
        ends = self._left_to_others
        if ends is None:
            ends = self._left_to_others = {}
        share_s = span_s / max(1, self._last_want - self.want_left)
        ends[kind] = min(max(ends.get(kind, now), now) + share_s, now + span_s)

    def _kinds_to_claim(self, now: float) -> tuple[str, ...]:
        left = {kind: end for kind, end in (self._left_to_others or {}).items() if end > now}
        self._left_to_others = left or None
        if not left:
            return ()
        return tuple(kind for kind in self._kinds() if kind not in left) or _NO_KIND

    def suspend_prefetch(self, now: float) -> None:
        """Claim nothing beyond the free slots for a while.

        Called for jobs with a limit, which counts from the claim, and for jobs that have crashed a
        worker, of which the store must know whether they had started.
        """
        self._no_prefetch_until = now + _NO_PREFETCH_S

    def release_prefetched(self) -> None:
        """Release the claims beyond the free slots."""
        prefetched = [run for run in self.ready if not run.job.started]
        self.ready = deque(run for run in self.ready if run.job.started)
        for run in prefetched:
            self._release(run)

    def pull(self, now: float) -> Run | None:
        """The next run for a slot task that holds a slot; with None the slot is free again."""
        ready, may_start, begin = self.ready, self._may_start, self._begin
        while ready and self.busy <= self.slots and may_start(now):
            run = ready.popleft()
            begin(run, now)
            launch = run.launch
            if launch is None:
                return run
            launch(run)
            if self.busy >= self.slots:
                return None
            self.busy += 1
        self.busy -= 1
        self._wake.notify()
        return None

    def start_ready(self, now: float) -> None:
        """Start as many ready jobs as slots and bounds allow.

        Of jobs for the event loop, only the first wakes a slot task now. Handlers that never await
        all run in that one task, and waking the others would cost more than the jobs.
        """
        ready, may_start = self.ready, self._may_start
        while ready and self.busy < self.slots and may_start(now):
            launch = ready[0].launch
            if launch is None:
                self.busy += 1
                self._wake_slot(self)
                if len(ready) > 1 and not self.is_start_scheduled:
                    self.is_start_scheduled = True
                    self._call_soon(self.start_remaining, now)
                return
            run = ready.popleft()
            self.busy += 1
            self._begin(run, now)
            launch(run)

    def start_remaining(self, now: float) -> None:
        """Wake a slot task for every job that can start: the handlers before them are awaiting."""
        self.is_start_scheduled = False
        ready, may_start = self.ready, self._may_start
        woken = 0
        while woken < len(ready) and self.busy < self.slots and may_start(now):
            self.busy += 1
            woken += 1
            self._wake_slot(self)

    def free_slot(self, run: Run, now: float) -> None:
        """Free the slot of a run that has ended; a strict one keeps it until the verdict."""
        if run.keeps_slot and run.state in (RunState.FINISHED, RunState.COMMITTING):
            return
        self.busy -= 1
        if self.ready:
            self.start_ready(now)
        else:
            self._wake.notify()

    def remove(self, run: Run) -> None:
        """Take out a run that has not started."""
        self.ready.remove(run)
        run.state = RunState.FINISHED

    def set_slots(self, slots: int) -> None:
        """Change the number of slots: running jobs finish, ready ones beyond it are released."""
        shrunk = slots < self.slots
        self.slots = slots
        while shrunk and len(self.ready) > max(0, slots - self.busy):
            self._release(self.ready.pop())

    def release_all(self) -> None:
        """Release all claims that have not started."""
        while self.ready:
            self._release(self.ready.popleft())

    def release_scope(self, scope: str) -> None:
        """Release the claims whose task declares this throttle scope and that have not started."""
        hit = [run for run in self.ready if scope in run.handler.scopes]
        if hit:
            self.ready = deque(run for run in self.ready if scope not in run.handler.scopes)
            for run in hit:
                self._release(run)

    def release_throttled(self, scope: str | None) -> None:
        """After a throttle, release what would meet the same limiter: the ready jobs of this queue,
        or with a scope those of every queue that declare it."""
        if scope is None:
            self.release_all()
        else:
            self._local_queues.release_scope(scope)

    def release_older(self, than: float) -> None:
        """Release the claims of that time and before: the prefetch was too large."""
        self.prefetch.reset()
        while self.ready and self.ready[0].claimed_at <= than:
            self._release(self.ready.popleft())

    def _release(self, run: Run) -> None:
        run.state = RunState.FINISHED
        self._finish_buffer.release(Claim(run.job.key, run.job.epoch))
