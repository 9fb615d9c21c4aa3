"""The net below the exchanges: due jobs of queues that nobody asks for, and expired ones."""

from collections.abc import Callable

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 500
_LOOK_S = 5.0
_LATE_S = 0.5


class Promote:
    """Every exchange promotes the queues it claims from; this looks half a second later."""

    name = "promote"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, store_now: Callable[[], Instant]) -> None:
        self._store = store
        self._store_now = store_now

    async def tick(self) -> Next:
        """Promote one batch."""
        promoted = await self._store.jobs.promote(limit=_LIMIT)
        if promoted.more:
            return Next.again()
        if promoted.next_due is None:
            return Next.after(_LOOK_S)
        due_s = (promoted.next_due - self._store_now()) / SECOND
        return Next.after(max(_LATE_S, min(due_s + _LATE_S, _LOOK_S)))
