"""Shares the slots of every queue out among the processes that live.

Processes also do this themselves when they come, go or hear of a change; this is the net below
them, for those that died and for changes nobody heard of.
"""

from forge_jobs.config import MAX_SLOTS_PER_PROCESS
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_EVERY_S = 2.0


class Rebalance:
    """Any number of processes may do this at once: the store shares out one after the other."""

    name = "rebalance"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, max_slots: int) -> None:
        self._store = store
        self._max_slots = max_slots

    async def tick(self) -> Next:
        """Share out once."""
        await rebalance_once(self._store, max_slots=self._max_slots)
        return Next.after(_EVERY_S)


async def rebalance_once(storage: Store, *, max_slots: int = MAX_SLOTS_PER_PROCESS) -> int:
    """Share the slots of all queues out once; how many shares changed.

    ``max_slots`` bounds what one process gets of one queue. What a process has to give up first is
    granted by a later call.
    """
    return await storage.processes.share(max_slots=max_slots)
