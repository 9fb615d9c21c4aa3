"""Merges written counter entries into totals, minutes and error groups."""

from msgspec import Struct

from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 1_000
_INTERVAL_S = 2.0
_MAX_ROUNDS = 10_000


class RollUp:
    """Readers add the entries that are not merged yet, so that this may be late, but not far."""

    name = "roll_up"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Merge one batch of each."""
        return Next.again() if await _roll_up(self._store) else Next.after(_INTERVAL_S)


async def _roll_up(store: Store) -> bool:
    more = await store.metrics.roll_up(limit=_LIMIT)
    return await store.error_groups.roll_up(limit=_LIMIT) or more


class RollReport(Struct, frozen=True, kw_only=True):
    """What ``metrics_roll_once`` did: how many batches it took.

    >>> asyncio.run(metrics_roll_once(forge.store)).rounds >= 0
    True
    """

    rounds: int


async def metrics_roll_once(storage: Store) -> RollReport:
    """Merge everything that was counted so far into minutes, totals and groups.

    >>> report = asyncio.run(metrics_roll_once(open_storage("memory://")))
    """
    await storage.open()
    rounds = 1
    while rounds < _MAX_ROUNDS and await _roll_up(storage):
        rounds += 1
    return RollReport(rounds=rounds)
