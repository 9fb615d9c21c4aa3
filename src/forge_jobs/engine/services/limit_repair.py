"""Admits held jobs whose limit has room: the safety net for limits and lanes.

Every transition that makes room admits the next job itself. This finds the rest: limits that were
raised for more jobs than one transaction admits, and anything that an error left behind.
"""

from forge_jobs.core.limits import Declared, task_limit
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.store import Store

_LIMIT = 200
_INTERVAL_S = 5.0
_STEP_S = 0.05


class LimitRepair:
    """Goes through all limit buckets that have jobs, some per tick."""

    name = "limit_repair"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after: str | None = None

    async def tick(self) -> Next:
        """Check some limit buckets."""
        step = await self._store.limits.admit(limit=_LIMIT, after=self._after)
        self._after = step.next
        return Next.after(_INTERVAL_S if step.next is None else _STEP_S)


async def publish_limits(store: Store, handlers: HandlerRegistry) -> None:
    """Write the limits that the tasks and queues of this process declare. The limit of a task that
    no longer declares one is removed; an operator's numbers stay."""
    declared = dict(handlers.limits)
    known = {limit.name for limit in await store.limits.all() if not limit.by_operator}
    for kind in handlers.kinds():
        name = task_limit(kind)
        if name in known and name not in declared:
            declared[name] = Declared(name=name)
    if declared:
        await store.limits.publish(list(declared.values()))
