"""The counters of one transaction: jobs by state, and events per minute.

Changes are collected here. The store writes them once at the end of the transaction, however many
jobs it changed.
"""

from collections.abc import Sequence

from forge_jobs.core.counters import Minute
from forge_jobs.core.decide import Finish
from forge_jobs.core.histogram import EMPTY, histogram
from forge_jobs.core.instant import MINUTE, SECOND, Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.tag_counts import TagPart, TagSums

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _PENDING, _SCHEDULED = JobStatus.RUNNING, JobStatus.PENDING, JobStatus.SCHEDULED
_HELD, _DONE, _FAILED = JobStatus.HELD, JobStatus.DONE, JobStatus.FAILED
_DEAD, _CANCELLED, _MISSING = JobStatus.DEAD, JobStatus.CANCELLED, Event.MISSING
_SUSPENDED = JobStatus.SUSPENDED
_DONE_EVENT, _REAP, _THROTTLE = Event.DONE, Event.REAP, Event.THROTTLE


class _KindCounters:
    """The events of one queue and kind. Times: ``waited`` from due to start, ``ran`` in the
    handler, ``took`` from enqueue to done."""

    __slots__ = (
        "cancelled", "dead", "done", "enqueued", "ran", "released", "retried", "started",
        "throttled", "took", "waited",
    )  # fmt: skip

    def __init__(self) -> None:
        self.enqueued = self.started = self.done = self.retried = self.dead = 0
        self.cancelled = self.throttled = self.released = 0
        self.waited: list[float] = []
        self.ran: list[float] = []
        self.took: list[float] = []

    def minute(self, at: Instant, queue: str, kind: str) -> Minute:
        return Minute(
            at=at,
            queue=queue,
            kind=kind,
            enqueued=self.enqueued,
            started=self.started,
            done=self.done,
            retried=self.retried,
            dead=self.dead,
            cancelled=self.cancelled,
            throttled=self.throttled,
            released=self.released,
            waited=histogram(self.waited) if self.waited else EMPTY,
            ran=histogram(self.ran) if self.ran else EMPTY,
            took=histogram(self.took) if self.took else EMPTY,
        )


class _TagCounters:
    """The runs of one tag, queue and kind."""

    __slots__ = ("dead", "done", "ran_s", "retried", "runs", "waited_s")

    def __init__(self) -> None:
        self.runs = self.done = self.retried = self.dead = 0
        self.ran_s = self.waited_s = 0.0

    def total(self) -> TagSums:
        return TagSums(self.runs, self.done, self.retried, self.dead, self.ran_s, self.waited_s)


class TransactionCounters:
    """The changes of one transaction; all in its own minute unless a minute is given."""

    __slots__ = ("_counts", "_kinds", "_minute", "_now", "_tags")

    def __init__(self, now: Instant) -> None:
        self._now = now
        self._minute = now - now % MINUTE
        self._counts: dict[tuple[str, str, str], int] = {}
        self._kinds: dict[tuple[Instant, str, str], _KindCounters] = {}
        self._tags: dict[tuple[str, str, str], _TagCounters] = {}

    def inserted(
        self, queue: str, kind: str, status: str, jobs: int = 1, minute: Instant | None = None
    ) -> None:
        """New jobs were stored in this state."""
        self._add_jobs(queue, kind, status, jobs)
        self._kind(queue, kind, minute).enqueued += jobs

    def transitioned(
        self, queue: str, kind: str, source: JobStatus, target: JobStatus, jobs: int = 1
    ) -> None:
        """Jobs changed their state. A transition from running to a waiting state counts as a
        release; ``row_transitioned`` tells a retry and a throttle from it."""
        self._add_jobs(queue, kind, source, -jobs)
        self._add_jobs(queue, kind, target, jobs)
        if target is _RUNNING:
            self._kind(queue, kind).started += jobs
        elif target is _DONE:
            self._kind(queue, kind).done += jobs
        elif target is _FAILED:
            self._kind(queue, kind).retried += jobs
        elif target is _DEAD:
            self._kind(queue, kind).dead += jobs
        elif target is _CANCELLED:
            self._kind(queue, kind).cancelled += jobs
        elif source is _RUNNING and target in (_PENDING, _SCHEDULED, _HELD, _SUSPENDED):
            self._kind(queue, kind).released += jobs

    def row_transitioned(
        self,
        queue: str,
        kind: str,
        source: JobStatus,
        target: JobStatus,
        event: Event,
        *,
        started: bool,
    ) -> None:
        """One job changed its state by this event; ``started``: its claim was marked started."""
        self.transitioned(queue, kind, source, target)
        if source is _RUNNING and target in (_PENDING, _SCHEDULED):
            counters = self._kind(queue, kind)
            if event is _THROTTLE:
                counters.released -= 1
                counters.throttled += 1
            elif event is _REAP and started:
                counters.released -= 1
                counters.retried += 1

    def deleted(self, queue: str, kind: str, status: str) -> None:
        """A job was deleted; its events stay."""
        self._add_jobs(queue, kind, status, -1)

    def finished(self, queue: str, kind: str, finishes: Sequence[Finish]) -> None:
        """Record the times of finished runs."""
        counters, now = self._kind(queue, kind), self._now
        counters.waited += [finish.waited_s for finish in finishes if finish.event is not _MISSING]
        counters.ran += [finish.ran_s for finish in finishes if finish.event is not _MISSING]
        counters.took += [
            (now - finish.enqueued_at) / SECOND
            for finish in finishes
            if finish.event is _DONE_EVENT
        ]

    def tagged(self, finish: Finish, target: JobStatus, *, timed: bool) -> None:
        """Count the run of a job with tags, which became ``target``."""
        if finish.event is _MISSING:
            return
        for tag in finish.tags:
            name = (tag, finish.queue, finish.kind)
            sums = self._tags.get(name)
            if sums is None:
                sums = self._tags[name] = _TagCounters()
            sums.runs += 1
            if target is _DONE:
                sums.done += 1
            elif target is _FAILED:
                sums.retried += 1
            elif target is _DEAD:
                sums.dead += 1
            if timed:
                sums.ran_s += finish.ran_s
                sums.waited_s += finish.waited_s

    def counts(self) -> list[tuple[str, str, str, int]]:
        """How the number of jobs changed, by queue, kind and state."""
        return [(*name, jobs) for name, jobs in self._counts.items() if jobs]

    def minutes(self) -> list[Minute]:
        """What happened, by minute, queue and kind."""
        return [counters.minute(*name) for name, counters in self._kinds.items()]

    def tag_parts(self) -> list[TagPart]:
        """What runs came to, by tag, queue and kind."""
        return [TagPart(self._minute, *name, sums.total()) for name, sums in self._tags.items()]

    def _add_jobs(self, queue: str, kind: str, status: str, jobs: int) -> None:
        name = (queue, kind, status)
        self._counts[name] = self._counts.get(name, 0) + jobs

    def _kind(self, queue: str, kind: str, minute: Instant | None = None) -> _KindCounters:
        name = (self._minute if minute is None else minute, queue, kind)
        counters = self._kinds.get(name)
        if counters is None:
            counters = self._kinds[name] = _KindCounters()
        return counters
