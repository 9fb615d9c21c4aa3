"""Brings the entries of the writers into the books."""

from msgspec import Struct

from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 1_000
_LOOK_S = 2.0
_MAX_ROUNDS = 10_000


class RollUp:
    """Readers add what is not folded yet, so that this may be late but should not be far behind."""

    name = "fold"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> Next:
        """Fold one batch."""
        more = await self._store.metrics.roll_up(limit=_LIMIT)
        return Next.again() if more else Next.after(_LOOK_S)


class RollReport(Struct, frozen=True, kw_only=True):
    """What ``metrics_roll_once`` did: how many batches it took."""

    rounds: int


async def metrics_roll_once(storage: Store) -> RollReport:
    """Bring everything that was counted so far into minutes and totals."""
    await storage.open()
    rounds = 1
    while rounds < _MAX_ROUNDS and await storage.metrics.roll_up(limit=_LIMIT):
        rounds += 1
    return RollReport(rounds=rounds)
