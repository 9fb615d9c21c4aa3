"""The contract for the books: counts, minutes and the lines handlers wrote.

Nothing here scans the jobs, and nothing here makes a writer wait.
"""

from typing import Protocol

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.select import Filter
from forge_jobs.core.tally import CappedCount, Count, Minute


class LedgerStore(Protocol):
    """What was counted and said."""

    async def counts(self) -> list[Count]:
        """Jobs by queue and state; equal to the rows at any moment. States without jobs may be
        left out."""
        ...

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        """Jobs that match, looking at no more than ``cap`` of them."""
        ...

    async def oldest_due(self) -> dict[str, Instant]:
        """For each queue with pending jobs: since when its longest-waiting pending job is due."""
        ...

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        """What happened per minute, queue and kind, oldest first; ``until`` is excluded."""
        ...

    async def logs(self, job_id: str) -> list[LogLine]:
        """The newest 1,000 lines the job's handlers wrote, oldest first."""
        ...

    async def fold(self, *, limit: int) -> bool:
        """Bring up to ``limit`` new entries into the books; whether there are more."""
        ...

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        """Forget minutes older than that; how many were removed."""
        ...
