"""Delivers events that no exchange has delivered yet, and finds waits that a delivery missed."""

from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 500
_INTERVAL_S = 5.0


class EventDelivery:
    """The safety net: senders and exchanges deliver events themselves."""

    name = "event_delivery"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Resume one batch of jobs."""
        resumed = await self._store.events.deliver(limit=_LIMIT)
        return Next.again() if resumed >= _LIMIT else Next.after(_INTERVAL_S)
