"""Divides the slots of every queue among the live processes.

Processes also do this themselves when they start, stop or see a change. This service is the safety
net, for processes that died and for changes that no process has seen.
"""

from forge_jobs.config import MAX_SLOTS_PER_PROCESS
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_EVERY_S = 2.0


class Rebalance:
    """Any number of processes may do this at once: the store serializes it."""

    name = "rebalance"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, max_slots: int) -> None:
        self._store = store
        self._max_slots = max_slots

    async def tick(self) -> Next:
        """Divide the slots once."""
        await rebalance_once(self._store, max_slots=self._max_slots)
        return Next.after(_EVERY_S)


async def rebalance_once(storage: Store, *, max_slots: int = MAX_SLOTS_PER_PROCESS) -> int:
    """Divide the slots of all queues once; returns how many shares changed.

    ``max_slots`` bounds what one process gets of one queue. What a process has to give up first is
    granted by a later call.

    >>> asyncio.run(rebalance_once(open_storage("memory://")))
    0
    """
    return await storage.processes.share(max_slots=max_slots)
