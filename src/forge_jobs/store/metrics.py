"""The contract for metrics: counters, minutes, process samples, job logs and the audit.

No method scans the jobs, and no method makes a writer wait.
"""

from typing import Final, Protocol

from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.vitals import Vitals

# How many limit buckets ``oldest_due`` looks at for held jobs.
MAX_HELD_READ: Final = 1_000


class MetricsStore(Protocol):
    """The contract for metrics."""

    async def counts(self) -> list[Count]:
        """Jobs by queue and state, equal to the rows at any moment. States without jobs may be
        omitted."""
        ...

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        """Jobs that match, counted up to ``cap``.

        A filter by queue, kind and state alone is answered from the counters. Any other filter
        reads a bounded number of jobs, newest first; ``more`` says that it did not read all of
        them.
        """
        ...

    async def oldest_due(self) -> dict[str, Instant]:
        """For each queue with pending or held jobs: since when the longest waiting one is due.

        The earliest ``run_at`` of a pending job, and of the first held job of each limit bucket and
        priority; of these at most ``MAX_HELD_READ`` are read.
        """
        ...

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        """What happened per minute, queue and kind, oldest first; ``until`` is excluded. Times of
        exchanges with ``timed`` False are not included."""
        ...

    async def totals(self) -> list[Minute]:
        """The sums over all time, per queue and kind, under minute 0. They never decrease."""
        ...

    async def record_vitals(self, vitals: Vitals) -> None:
        """Store the sample of a process. Further samples of the same minute are merged into it."""
        ...

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        """The samples of processes, oldest minute first, then by host_id; ``until`` is excluded.

        The minute ``LIFETIME`` has one sample without a host: the round trips of all processes over
        all time, and how many failed. Its numbers never decrease.
        """
        ...

    async def logs(self, job_id: str) -> list[LogLine]:
        """The newest 1,000 log lines of a job's handlers, oldest first."""
        ...

    async def roll_up(self, *, limit: int) -> bool:
        """Roll up to ``limit`` written counter entries up into totals and minutes; whether there
        are more."""
        ...

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        """Delete minutes and process samples older than ``before``, at most ``limit`` of each; how
        many. ``totals`` and ``LIFETIME`` stay."""
        ...

    async def stamp(self) -> str:
        """A value that changes with every commit. While it is equal, nothing was written. It may
        also change because of other users of the same database."""
        ...

    async def record_action(self, entry: AuditEntry) -> None:
        """Append an operator's action to the audit. The store assigns the next id and ignores the
        given one."""
        ...

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        """The audit, newest first; with ``after`` only entries with a lower id."""
        ...

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        """Delete audit entries older than ``before``, at most ``limit``; how many."""
        ...
