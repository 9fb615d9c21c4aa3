"""Jobs with limits and lanes for the simulation, and an operator who changes the limits.

Tasks with a total limit, tasks with a limit per key, tasks with a rate, serial and strict lanes.
There are few keys and lanes, so that all of them are always full.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forge_jobs.core.errors import StoreError
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.limit_key import limit_key
from forge_jobs.core.limits import Declared, task_limit
from forge_jobs.store.limits import LimitChange
from forge_jobs.store.store import Store
from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.plan import Behaviour, Plan

if TYPE_CHECKING:
    from rigs.simulation.node import SimContext

BOUND_QUEUE: Final = "bound"
LIMIT_OPERATOR: Final = "governor"
# Numbers that do not collide with those of the other jobs.
FIRST_NUMBER: Final = 500_000
RATE_PER_S: Final = 2.0
BURST: Final = 3.0
PER: Final = "args.host"
LIMITS: Final = (
    Declared(name=task_limit("single"), concurrency=1, per=PER),
    Declared(name=task_limit("keyed"), concurrency=2, per=PER),
    Declared(name=task_limit("capped"), concurrency=2),
    Declared(name=task_limit("rated"), rate_per_s=RATE_PER_S, burst=BURST),
)
KINDS: Final = ("single", "keyed", "capped", "rated", "lined")
_CHANGED: Final = ("keyed", "capped")
_CONCURRENCIES: Final = (1, 2, 3, 6)
_BEHAVIOURS: Final = (
    Behaviour.QUICK, Behaviour.SLOW, Behaviour.SLOW, Behaviour.SLOW, Behaviour.FLAKY,
    Behaviour.DOOMED, Behaviour.SNOOZE, Behaviour.STUBBORN,
)  # fmt: skip


class BoundPlan(Plan, frozen=True, omit_defaults=True, kw_only=True):
    """A plan with the argument that is the limit key of its task."""

    host: str


def bound_job(number: int, dice: Dice) -> NewJob:
    """The request for the ``number``-th limited job of the simulation."""
    kind, behaviour = dice.pick(KINDS), dice.pick(_BEHAVIOURS)
    plan = BoundPlan(
        number=number,
        behaviour=behaviour,
        work_s=round(dice.skewed(0.05, 6.0), 4),
        times=1 + dice.index(2),
        shape=dice.index(1_000),
        host=f"h{dice.index(3)}",
    )
    payload = msgspec.json.encode(plan)
    return NewJob(
        kind=kind,
        queue=BOUND_QUEUE,
        payload=payload,
        priority=dice.index(3) - 1,
        delay_s=round(dice.between(0.1, 10), 3) if dice.chance(0.2) else 0.0,
        expires_s=round(dice.between(5, 60), 3) if dice.chance(0.05) else None,
        max_attempts=1 + dice.index(4),
        track=kind in ("capped", "rated") and dice.chance(0.8),
        **_binding(kind, payload, dice),
    )


def _binding(kind: str, payload: bytes, dice: Dice) -> dict[str, Any]:
    if kind == "lined":
        order = dice.pick((LaneOrder.SERIAL, LaneOrder.STRICT))
        return {"lane": f"{order}-{dice.index(2)}", "order": order}
    if kind in ("single", "keyed"):
        return {"limit_key": limit_key(kind, PER, payload)}
    return {}


class LimitOperator:
    """An operator who raises and lowers limits."""

    def __init__(self, sim: "SimContext", store: Store, dice: Dice) -> None:
        self._sim = sim
        self._store = store
        self._dice = dice

    async def change_limits(self, until_s: float) -> None:
        """Change something now and then until virtual time has reached ``until_s``."""
        while True:
            pause_s = self._dice.between(1, 20)
            if self._sim.loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            name = task_limit(self._dice.pick(_CHANGED))
            try:
                await self._change(name, self._dice.pick(_CONCURRENCIES))
            except StoreError:
                continue

    async def restore(self) -> None:
        """Raise all limits again. The connection has no faults any more."""
        for kind in _CHANGED:
            await self._change(task_limit(kind), _CONCURRENCIES[-1])

    async def _change(self, name: str, max_slots: int) -> None:
        self._sim.fault(LIMIT_OPERATOR, "limit", f"{name} {max_slots}")
        await self._store.limits.change(name, LimitChange(concurrency=max_slots))


def declared(kinds: Sequence[str] = KINDS) -> dict[str, Declared]:
    """What nodes declare for these tasks."""
    return {limit.name: limit for limit in LIMITS if limit.name in map(task_limit, kinds)}
