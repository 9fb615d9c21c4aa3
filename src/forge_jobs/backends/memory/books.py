"""The books of the memory backend: counters kept with every move, never counted from the rows."""

from dataclasses import dataclass

from forge_jobs.core.instant import MINUTE, Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.tally import Count, Minute

from .rows import Row


@dataclass(slots=True)
class _Sums:
    enqueued: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    ran_s: float = 0.0


class Books:
    """Jobs by queue and state, and what happened in each minute."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, JobStatus], int] = {}
        self._minutes: dict[tuple[Instant, str, str], _Sums] = {}

    def entered(self, row: Row, now: Instant) -> None:
        """A job came into being in its present state."""
        self._add(row.queue, row.status, 1)
        self._sums(row, now).enqueued += 1

    def moved(self, row: Row, source: JobStatus, event: Event, now: Instant) -> None:
        """A job went from ``source`` to its present state."""
        target = row.status
        self._add(row.queue, source, -1)
        self._add(row.queue, target, 1)
        if target is JobStatus.DONE:
            self._sums(row, now).done += 1
        elif target is JobStatus.DEAD:
            self._sums(row, now).dead += 1
        elif target is JobStatus.CANCELLED:
            self._sums(row, now).cancelled += 1
        elif target is JobStatus.FAILED or (event is Event.REAP and row.started):
            self._sums(row, now).retried += 1

    def removed(self, row: Row) -> None:
        """A job was deleted; what happened in its minutes stays."""
        self._add(row.queue, row.status, -1)

    def ran(self, row: Row, seconds: float, now: Instant) -> None:
        """A handler ran for that long."""
        if seconds:
            self._sums(row, now).ran_s += seconds

    def counts(self) -> list[Count]:
        return [
            Count(queue, status, jobs) for (queue, status), jobs in sorted(self._counts.items())
        ]

    def minutes(self, since: Instant, until: Instant, queue: str | None) -> list[Minute]:
        return [
            Minute(
                at=at,
                queue=name,
                kind=kind,
                enqueued=sums.enqueued,
                done=sums.done,
                retried=sums.retried,
                dead=sums.dead,
                cancelled=sums.cancelled,
                ran_s=sums.ran_s,
            )
            for (at, name, kind), sums in sorted(self._minutes.items(), key=lambda item: item[0])
            if since <= at < until and queue in (None, name)
        ]

    def forget(self, before: Instant, limit: int) -> int:
        old = sorted(minute for minute in self._minutes if minute[0] < before)[: max(limit, 0)]
        for minute in old:
            del self._minutes[minute]
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
