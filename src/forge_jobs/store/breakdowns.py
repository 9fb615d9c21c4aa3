"""The contract for numbers by kind and by tag: the present jobs, and what happened over hours and
days.

No method scans the jobs. ``MetricsStore.roll_up`` maintains all of it, ``purge_minutes`` deletes it
by age.
"""

from typing import Final, Protocol

from forge_jobs.core.counters import KindCount, Minute
from forge_jobs.core.instant import DAY, FIVE_MINUTES, HOUR, MINUTE, Instant
from forge_jobs.core.tag_counts import TagDay

PERIODS: Final = (MINUTE, FIVE_MINUTES, HOUR, DAY)
"""The lengths of the periods that are kept; five minutes for two days only."""


class BreakdownStore(Protocol):
    """Reads numbers by queue and kind, and by tag."""

    async def counts(self) -> list[KindCount]:
        """Jobs by queue, kind and state, equal to the rows at any moment; without zeros."""
        ...

    async def periods(
        self,
        length: Instant,
        *,
        since: Instant,
        until: Instant,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 20_000,
    ) -> list[Minute]:
        """What happened per period of this length (one of ``PERIODS``), queue and kind, oldest
        first; ``at`` is the start of the period. Periods that start in the range count, ``until``
        is excluded. Reads the newest ``limit`` stored entries at most, with ``kind`` the newest
        ``limit`` periods."""
        ...

    async def tag_days(
        self, *, since: Instant, until: Instant, tag: str | None = None
    ) -> list[TagDay]:
        """What runs came to by tag, for each day (UTC) that has a part in the range, oldest first,
        then by tag; ``core.tag_counts`` says which tags have a place of their own. Without ``tag``
        ``tasks`` may be missing, and for more than two days ``hours`` too."""
        ...
