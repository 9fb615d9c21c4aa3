"""Shares the slots of every queue out among the processes that live.

Processes also do this themselves when they come, go or hear of a change; this is the net below
them, for those that died and for changes nobody heard of.
"""

from forge_jobs.config import SLOTS_PER_PROCESS_MOST
from forge_jobs.kit.service import Next, Scope
from forge_jobs.store.bundle import Store

_EVERY_S = 2.0


class Rebalance:
    """Any number of processes may do this at once: the store shares out one after the other."""

    name = "rebalance"
    scope = Scope.CLUSTER

    def __init__(self, store: Store, *, most: int) -> None:
        self._store = store
        self._most = most

    async def tick(self) -> Next:
        """Share out once."""
        await rebalance_once(self._store, most=self._most)
        return Next.after(_EVERY_S)


async def rebalance_once(storage: Store, *, most: int = SLOTS_PER_PROCESS_MOST) -> int:
    """Share the slots of all queues out once; how many shares changed.

    ``most`` bounds what one process gets of one queue. What a process has to give up first is
    granted by a later call.
    """
    return await storage.processes.share(most=most)
