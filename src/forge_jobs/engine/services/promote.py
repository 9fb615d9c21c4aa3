"""The net below the exchanges: due jobs of queues that nobody asks for, and expired ones."""

from forge_jobs.kit.service import Next, Scope
from forge_jobs.store.bundle import Store

_LIMIT = 500
_LOOK_S = 5.0
_LATE = 500_000


class Promote:
    """Every exchange promotes the queues it claims from; this looks half a second later."""

    name = "promote"
    scope = Scope.CLUSTER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Promote one batch."""
        promoted = await self._store.jobs.promote(limit=_LIMIT)
        if promoted.more:
            return Next.again()
        if promoted.next_due is None:
            return Next.after(_LOOK_S)
        return Next.at_instant(promoted.next_due + _LATE, at_most_s=_LOOK_S)
