"""Says aloud when a queue that is set up, or in which jobs wait, has no living worker."""

import logging

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LOG = logging.getLogger("forge_jobs.queues")
_LOOK_S = 4.0
_SAY_AGAIN_S = 60.0


class Unserved:
    """A job in such a queue would otherwise wait in silence, for ever. Said at once, then once a
    minute while it stays so."""

    name = "unserved"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._mono = clock.mono
        self._said_at: dict[str, float] = {}

    async def tick(self) -> Next:
        """Look once."""
        waiting = await self._store.metrics.oldest_due()
        configs = await self._store.queues.all()
        served = {name for one in await self._store.processes.all() for name in one.queues}
        # A queue without slots is not meant for workers: scripts pull from it.
        pulled = {config.name for config in configs if config.slots == 0}
        unserved = sorted({*waiting, *(config.name for config in configs)} - served - pulled)
        now = self._mono()
        self._said_at = {name: at for name, at in self._said_at.items() if name in unserved}
        for queue in unserved:
            said_at = self._said_at.get(queue)
            if said_at is None or now - said_at >= _SAY_AGAIN_S:
                self._said_at[queue] = now
                waits = "jobs wait in" if queue in waiting else "there is"
                _LOG.warning(
                    f"{waits} a queue that no worker serves: start one with this queue",
                    extra={"queue": queue},
                )
        return Next.after(_LOOK_S)
