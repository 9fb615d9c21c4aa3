"""Counters of the memory backend, updated with every transition and never counted from the rows."""

from dataclasses import dataclass, field

from forge_jobs.core.counters import Count, Minute, sum_totals
from forge_jobs.core.decide import Finish
from forge_jobs.core.histogram import EMPTY, Histogram, bucket_of
from forge_jobs.core.instant import MINUTE, SECOND, Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.vitals import LIFETIME, Vitals, lifetime_part, merge_vitals

from .rows import Row


@dataclass(slots=True)
class _Spans:
    sum_s: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, span_s: float) -> None:
        bucket = bucket_of(span_s)
        self.sum_s += span_s
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def histogram(self) -> Histogram:
        return Histogram(self.sum_s, dict(sorted(self.buckets.items()))) if self.buckets else EMPTY


@dataclass(slots=True)
class _Sums:
    enqueued: int = 0
    started: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    throttled: int = 0
    released: int = 0
    waited: _Spans = field(default_factory=_Spans)
    ran: _Spans = field(default_factory=_Spans)
    took: _Spans = field(default_factory=_Spans)

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
            waited=self.waited.histogram(),
            ran=self.ran.histogram(),
            took=self.took.histogram(),
        )


class Counters:
    """Jobs by queue and state, events per minute, and the reports of processes."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, JobStatus], int] = {}
        self._minutes: dict[tuple[Instant, str, str], _Sums] = {}
        self._purged: list[Minute] = []
        self._vitals: dict[tuple[Instant, str], Vitals] = {}

    def count_insert(self, row: Row, now: Instant) -> None:
        """Count a new job in its present state."""
        self._add(row.queue, row.status, 1)
        self._sums(row, now).enqueued += 1

    def count_transition(self, row: Row, source: JobStatus, event: Event, now: Instant) -> None:
        """Count a transition from ``source`` to the present state."""
        target = row.status
        self._add(row.queue, source, -1)
        self._add(row.queue, target, 1)
        match target:
            case JobStatus.RUNNING:
                self._sums(row, now).started += 1
            case JobStatus.DONE:
                self._sums(row, now).done += 1
            case JobStatus.DEAD:
                self._sums(row, now).dead += 1
            case JobStatus.CANCELLED:
                self._sums(row, now).cancelled += 1
            case JobStatus.FAILED:
                self._sums(row, now).retried += 1
            case JobStatus.PENDING | JobStatus.SCHEDULED | JobStatus.HELD:
                if source is JobStatus.RUNNING:
                    self._count_release(row, event, now)

    def _count_release(self, row: Row, event: Event, now: Instant) -> None:
        sums = self._sums(row, now)
        if event is Event.REAP and row.started:
            sums.retried += 1
        elif event is Event.THROTTLE:
            sums.throttled += 1
        else:
            sums.released += 1

    def count_delete(self, row: Row) -> None:
        """Count a deleted job. Its minutes stay."""
        self._add(row.queue, row.status, -1)

    def count_times(self, row: Row, finish: Finish, now: Instant) -> None:
        """Add the times of a finished run to its minute."""
        if finish.event is Event.MISSING:
            return
        sums = self._sums(row, now)
        sums.waited.add(finish.waited_s)
        sums.ran.add(finish.ran_s)
        if finish.event is Event.DONE:
            sums.took.add((now - row.enqueued_at) / SECOND)

    def counts(self) -> list[Count]:
        return [
            Count(queue, status, jobs) for (queue, status), jobs in sorted(self._counts.items())
        ]

    def minutes(self, since: Instant, until: Instant, queue: str | None) -> list[Minute]:
        return [
            sums.minute(at, name, kind)
            for (at, name, kind), sums in sorted(self._minutes.items(), key=lambda item: item[0])
            if since <= at < until and queue in (None, name)
        ]

    def totals(self) -> list[Minute]:
        return sum_totals([*self._purged, *self.minutes(0, 1 << 62, None)])

    def purge_minutes(self, before: Instant, limit: int) -> int:
        old = sorted(minute for minute in self._minutes if minute[0] < before)[: max(limit, 0)]
        gone = [self._minutes.pop(minute).minute(*minute) for minute in old]
        self._purged = sum_totals([*self._purged, *gone])
        return len(old)

    def add_vitals(self, vitals: Vitals) -> None:
        """Add a report of a process."""
        for part in (vitals, lifetime_part(vitals)):
            name = (part.at, part.host_id)
            known = self._vitals.get(name)
            self._vitals[name] = part if known is None else merge_vitals([known, part])

    def vitals(self, since: Instant, until: Instant) -> list[Vitals]:
        return [
            vitals
            for (at, _), vitals in sorted(self._vitals.items(), key=lambda item: item[0])
            if since <= at < until
        ]

    def purge_vitals(self, before: Instant, limit: int) -> int:
        old = sorted(name for name in self._vitals if LIFETIME < name[0] < before)[: max(limit, 0)]
        for name in old:
            del self._vitals[name]
        return len(old)

    def _add(self, queue: str, status: JobStatus, jobs: int) -> None:
        left = self._counts.get((queue, status), 0) + jobs
        if left:
            self._counts[queue, status] = left
        else:
            del self._counts[queue, status]

    def _sums(self, row: Row, now: Instant) -> _Sums:
        minute = (now - now % MINUTE, row.queue, row.job.kind)
        sums = self._minutes.get(minute)
        if sums is None:
            sums = self._minutes[minute] = _Sums()
        return sums
