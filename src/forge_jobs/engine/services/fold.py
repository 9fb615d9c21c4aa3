"""Brings the entries of the writers into the books."""

from forge_jobs.kit.service import Next, Scope
from forge_jobs.store.bundle import Store

_LIMIT = 1_000
_LOOK_S = 2.0


class Fold:
    """Readers add what is not folded yet, so that this may be late but should not be far behind."""

    name = "fold"
    scope = Scope.CLUSTER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Fold one batch."""
        more = await self._store.ledger.fold(limit=_LIMIT)
        return Next.again() if more else Next.after(_LOOK_S)
