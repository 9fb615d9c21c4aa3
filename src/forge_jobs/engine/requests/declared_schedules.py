"""Schedules that code declares, brought into the store without undoing what operators did.

The first worker that declares a schedule creates it. Later, what the code says is followed as long
as no operator has changed it; whether it is enabled is the operator's alone from the start.
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

_TRIES = 20
_FIELDS = CronSpec.__struct_fields__


async def ensure_schedules(storage: Store, schedules: Iterable[CronSpec]) -> list[Schedule]:
    """Declare schedules; each as it stands in the store afterwards."""
    said = [checked(one, where=f"schedule {one.name!r}") for one in schedules]
    if not said:
        return []
    now = (await storage.schedules.due(limit=0)).now
    return [await _declare(storage, one, now) for one in said]


async def _declare(storage: Store, said: CronSpec, now: Instant) -> Schedule:
    for _ in range(_TRIES):
        known = await storage.schedules.get(said.name)
        if known is None:
            wanted = Schedule(**_fields(said), declared=True, next_at=first_tick(said, now))
        elif known.edited or not known.declared or _fields(known) == _fields(said):
            return known
        else:
            wanted = _followed(known, said, now)
        version = 0 if known is None else known.version
        if await storage.schedules.put(wanted, expect=version):
            return replace(wanted, version=version + 1)
    raise Conflict(f"schedule {said.name!r} changes all the time: try again")


def _followed(known: Schedule, said: CronSpec, now: Instant) -> Schedule:
    # One that was disabled because it could not be read is in use again once the code is mended.
    enabled = known.enabled or known.error is not None
    moved = (known.expression, known.zone) != (said.expression, said.zone)
    next_at = known.next_at
    if not enabled:
        next_at = None
    elif moved or next_at is None:
        next_at = first_tick(said, now, last_at=known.last_at)
    return replace(known, **_fields(said), enabled=enabled, next_at=next_at, error=None)


def _fields(said: CronSpec) -> dict[str, Any]:
    values = asdict(said)
    return {field: values[field] for field in _FIELDS}
