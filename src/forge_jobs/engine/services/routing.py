"""Moves jobs to their queue that were stored before a worker had published it."""

from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 500
_INTERVAL_S = 5.0


class Routing:
    """A producer that knows neither the task nor a worker of it stores jobs in the default queue,
    where perhaps no worker of the task looks. Periodic and not only at the start of a worker:
    producers go by what they read some seconds ago."""

    name = "routing"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Move one batch."""
        queues = await self._store.queues.kinds()
        moved = await self._store.jobs.route(queues, limit=_LIMIT) if queues else 0
        return Next.again() if moved >= _LIMIT else Next.after(_INTERVAL_S)
