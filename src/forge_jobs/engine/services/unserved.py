"""Says aloud when jobs wait in a queue that no living worker serves."""

import logging

from forge_jobs.kit.service import Next, Scope
from forge_jobs.store.bundle import Store

_LOG = logging.getLogger("forge_jobs.queues")
_EVERY_S = 60.0


class Unserved:
    """A job in such a queue would otherwise wait in silence, for ever."""

    name = "unserved"
    scope = Scope.CLUSTER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Look once."""
        waiting = await self._store.ledger.oldest_due()
        served = [name for record in await self._store.processes.all() for name in record.queues]
        for queue in sorted(waiting):
            if queue not in served:
                _LOG.warning(
                    "jobs wait in a queue that no worker serves: start one with this queue",
                    extra={"queue": queue},
                )
        return Next.after(_EVERY_S)
