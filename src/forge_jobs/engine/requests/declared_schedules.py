"""Stores the schedules that code declares, without undoing the changes of operators.

The first worker that declares a schedule creates it. Later declarations change it, as long as no
operator has edited it. Whether it is enabled is decided by operators only.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict, replace

from forge_jobs.core.errors import Conflict
from forge_jobs.core.instant import Instant
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.schedule_ticks import checked, first_tick
from forge_jobs.store.schedules import Schedule
from forge_jobs.store.store import Store

_MAX_TRIES = 20
_FIELDS = CronSpec.__struct_fields__


async def ensure_schedules(storage: Store, schedules: Iterable[CronSpec]) -> list[Schedule]:
    """Store declared schedules; returns each as it is in the store afterwards.

    >>> nightly = CronSpec(name="nightly", expression="0 3 * * *", kind="report")
    >>> [stored] = asyncio.run(ensure_schedules(open_storage("memory://"), [nightly]))
    >>> stored.enabled
    True
    """
    specs = [checked(spec, where=f"schedule {spec.name!r}") for spec in schedules]
    if not specs:
        return []
    now = (await storage.schedules.due(limit=0)).now
    return [await _declare(storage, spec, now) for spec in specs]


async def _declare(storage: Store, spec: CronSpec, now: Instant) -> Schedule:
    for _ in range(_MAX_TRIES):
        known = await storage.schedules.get(spec.name)
        if known is None:
            wanted = Schedule(**_fields(spec), declared=True, next_at=first_tick(spec, now))
        elif known.edited or not known.declared or _fields(known) == _fields(spec):
            return known
        else:
            wanted = _changed(known, spec, now)
        version = 0 if known is None else known.version
        if await storage.schedules.put(wanted, expect=version):
            return replace(wanted, version=version + 1)
    raise Conflict(f"schedule {spec.name!r} changes all the time: try again")


def _changed(known: Schedule, spec: CronSpec, now: Instant) -> Schedule:
    # A schedule that was disabled for an invalid expression is enabled again by a valid one.
    enabled = known.enabled or known.error is not None
    moved = (known.expression, known.zone) != (spec.expression, spec.zone)
    next_at = known.next_at
    if not enabled:
        next_at = None
    elif moved or next_at is None:
        next_at = first_tick(spec, now, last_at=known.last_at)
    return replace(known, **_fields(spec), enabled=enabled, next_at=next_at, error=None)


def _fields(spec: CronSpec) -> dict[str, Any]:
    values = asdict(spec)
    return {field: values[field] for field in _FIELDS}
