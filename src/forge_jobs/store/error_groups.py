"""The contract for error groups: counters of failed attempts that have the same cause."""

from collections.abc import Sequence
from typing import Protocol

from forge_jobs.core.error_groups import ErrorGroup
from forge_jobs.core.instant import Instant


class ErrorGroupStore(Protocol):
    """The contract for error groups.

    * The transaction that adds an error to a job (``JobStore.exchange``, ``JobStore.reap``) counts
      it in its group, exactly once. An attempt that a cancel request ended is not counted, nor is
      the search for a worker that has a handler.
    * A store keeps at most ``MAX_GROUPS`` groups and one for all others. No method scans jobs.
    * The jobs whose last failed attempt is of a group are found by ``Filter.group``.
    """

    async def seen(self, *, since: Instant = 0) -> list[ErrorGroup]:
        """The groups with a failure at that instant or later, the newest first."""
        ...

    async def get(self, group_id: str) -> ErrorGroup | None:
        """One group; None for an unknown id."""
        ...

    async def resolve(self, group_ids: Sequence[str], *, by: str) -> int:
        """Mark groups as resolved now; how many there are. A later failure sets ``returned_at``."""
        ...

    async def reopen(self, group_ids: Sequence[str]) -> int:
        """Remove the mark; how many groups there are."""
        ...

    async def roll_up(self, *, limit: int) -> bool:
        """Merge up to ``limit`` written failures into their groups; whether there are more. Readers
        do so themselves, so that this may be late."""
        ...

    async def purge(self, *, before: Instant, limit: int) -> int:
        """Delete groups last seen before an instant, at most ``limit``; how many."""
        ...
