"""Warns about queues without a live worker that have settings or waiting jobs."""

import logging

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.log import log_facts
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LOG = logging.getLogger("forge_jobs.queues")
_INTERVAL_S = 4.0
_REPEAT_S = 60.0


class Unserved:
    """Without the warning a job in such a queue would wait forever unnoticed. Logged at once, then
    once a minute while it lasts."""

    name = "unserved"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._mono = clock.mono
        self._warned_at: dict[str, float] = {}

    async def tick(self) -> Next:
        """Check once."""
        waiting = await self._store.metrics.oldest_due()
        configs = await self._store.queues.all()
        served = {name for one in await self._store.processes.all() for name in one.queues}
        # A queue without slots is not meant for workers: scripts pull from it.
        pulled = {config.name for config in configs if config.slots == 0}
        unserved = sorted({*waiting, *(config.name for config in configs)} - served - pulled)
        now = self._mono()
        self._warned_at = {name: at for name, at in self._warned_at.items() if name in unserved}
        for queue in unserved:
            warned_at = self._warned_at.get(queue)
            if warned_at is None or now - warned_at >= _REPEAT_S:
                self._warned_at[queue] = now
                waits = "jobs wait in" if queue in waiting else "there is"
                text = f"{waits} a queue that no worker serves: start one with this queue"
                log_facts(_LOG, logging.WARNING, text, queue=queue)
        return Next.after(_INTERVAL_S)
