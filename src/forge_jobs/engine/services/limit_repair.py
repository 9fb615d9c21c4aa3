"""The net below full keys and busy lanes: whatever was left waiting although there is room.

Every move that makes room lets the next job on by itself. This finds what it cannot: limits that
were raised for more jobs than one transaction moves, and anything a fault left behind.
"""

from forge_jobs.core.limits import Declared, task_limit
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 200
_LOOK_S = 5.0
_STEP_S = 0.05


class LimitRepair:
    """Walks over all lots with a job in them, some at a time."""

    name = "lots"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after: str | None = None

    async def tick(self) -> Next:
        """Look at some lots."""
        step = await self._store.limits.admit(limit=_LIMIT, after=self._after)
        self._after = step.next
        return Next.after(_LOOK_S if step.next is None else _STEP_S)


async def publish_limits(store: Store, handlers: HandlerRegistry) -> None:
    """Tell the store what the tasks and queues of this process declare. A task that declares
    nothing any more gives up what code set before; an operator's numbers stay."""
    declared = dict(handlers.limits)
    known = {limit.name for limit in await store.limits.all() if not limit.by_operator}
    for kind in handlers.kinds():
        name = task_limit(kind)
        if name in known and name not in declared:
            declared[name] = Declared(name=name)
    if declared:
        await store.limits.publish(list(declared.values()))
