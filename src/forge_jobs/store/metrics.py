"""The contract for the books: counts, minutes, the lines handlers wrote, and who did what.

Nothing here scans the jobs, and nothing here makes a writer wait.
"""

from typing import Protocol

from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.vitals import Vitals


class MetricsStore(Protocol):
    """What was counted and said."""

    async def counts(self) -> list[Count]:
        """Jobs by queue and state; equal to the rows at any moment. States without jobs may be
        left out."""
        ...

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        """Jobs that match, counted up to ``cap``. Queue, kind and state are counted from the books;
        where more is asked for, one call looks at a bounded number of jobs, newest first, and
        ``more`` says that it did not come to the end."""
        ...

    async def oldest_due(self) -> dict[str, Instant]:
        """For each queue with pending jobs: since when its longest-waiting pending job is due."""
        ...

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        """What happened per minute, queue and kind, oldest first; ``until`` is excluded. Times
        are in it unless the exchange that told them was not ``timed``."""
        ...

    async def totals(self) -> list[Minute]:
        """Everything that ever happened, per queue and kind, under minute 0: what grows only."""
        ...

    async def record_vitals(self, vitals: Vitals) -> None:
        """Keep how a process fared; further reports about the same minute are added to it."""
        ...

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        """How processes fared, oldest minute first, then by host_id; ``until`` is excluded. The
        minute ``EVER`` has one row without a host: the round trips of all that ever reported, and
        how many failed, which grow only."""
        ...

    async def logs(self, job_id: str) -> list[LogLine]:
        """The newest 1,000 lines the job's handlers wrote, oldest first."""
        ...

    async def roll_up(self, *, limit: int) -> bool:
        """Bring up to ``limit`` new entries into the books; whether there are more."""
        ...

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        """Forget minutes older than that, of queues and processes, at most ``limit`` of each; how
        many were removed. ``totals`` stay."""
        ...

    async def stamp(self) -> str:
        """A mark that changes with every commit. As long as it is the same, nothing was written;
        that it differs may be due to others in the same database."""
        ...

    async def record_action(self, entry: AuditEntry) -> None:
        """Keep what an operator did; the store gives it the next id, whatever it said."""
        ...

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        """What operators did, newest first; with ``after`` only entries of a lower id."""
        ...

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        """Forget entries older than that, at most ``limit``; how many were removed."""
        ...
