"""Cron schedules: read models and operator actions.

Edits use optimistic concurrency: a change is stored only if the schedule still has the version that
was read. So an edit beside a fire cannot bring a fired tick back.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from forge_jobs.core import payload as json_payload
from forge_jobs.core.audit import Value
from forge_jobs.core.declaration import Declaration
from forge_jobs.core.errors import BadOption, Conflict, NotFound
from forge_jobs.core.instant import SECOND, to_datetime
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.schedule_ticks import checked, first_tick
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.published_kinds import PublishedKinds
from forge_jobs.store.schedules import FIRES_KEPT, Fire, FireOutcome, Schedule
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail, field_values
from .published_check import check_published
from .queries import decode_redacted, restore_redacted
from .views import View, optional_datetime

_MAX_TRIES = 20
_SPEC_FIELDS = CronSpec.__struct_fields__
# A payload is not recorded; the template holds one, too.
_NOT_AUDITED = ("name", "payload", "template")
_AUDITED = (*(name for name in _SPEC_FIELDS if name not in _NOT_AUDITED), "enabled")
_MAX_PAYLOAD_FIELDS = 20


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule for display.

    ``declared``: code declares it; ``edited``: an operator's values override the declaration.
    ``queue`` None: the queue of the kind. ``error``: why the scheduler disabled it.
    """

    name: str
    expression: str
    tz: str
    kind: str
    queue: str | None
    payload: Any
    missed: str
    missed_limit: int
    overlap: str
    jitter_s: float
    max_attempts: int | None
    enabled: bool
    declared: bool
    edited: bool
    next_at: datetime | None
    last_at: datetime | None
    error: str | None
    updated_at: datetime


class FireView(View, frozen=True, kw_only=True):
    """A past tick. ``missed``: earlier ticks that were skipped with it, counted up to 100."""

    tick: datetime
    at: datetime
    outcome: FireOutcome
    job_id: str | None
    late_s: float
    missed: int


class ScheduleChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New values for some fields of a schedule; UNSET ones do not change."""

    expression: str | UnsetType = UNSET
    zone: str | UnsetType = UNSET
    queue: str | UnsetType | None = UNSET
    payload: bytes | UnsetType = UNSET
    missed: str | UnsetType = UNSET
    missed_limit: int | UnsetType = UNSET
    overlap: str | UnsetType = UNSET
    jitter_s: float | UnsetType = UNSET
    max_attempts: int | UnsetType | None = UNSET
    template: bytes | UnsetType = UNSET


class ScheduleActions:
    """Reads and changes the schedules of one store; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._trail = AuditTrail(store, actor, audit, clock)

    # -------------------------------------------------------------------------------------- reads

    async def all(self) -> tuple[ScheduleView, ...]:
        """All schedules, by name."""
        return tuple(schedule_view(schedule) for schedule in await self._store.schedules.all())

    async def get(self, name: str) -> ScheduleView:
        """One schedule, or NotFound."""
        return schedule_view(await self._get(name))

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> tuple[FireView, ...]:
        """Its last fires, newest first; NotFound for an unknown schedule."""
        await self._get(name)
        max_fires = max(0, min(limit, FIRES_KEPT))
        return tuple(map(fire_view, await self._store.schedules.history(name, limit=max_fires)))

    async def payload(self, name: str, edited: object) -> bytes:
        """Encode an edited payload, with redacted values replaced by the stored secrets."""
        current = await self._get(name)
        restored = restore_redacted(edited, json_payload.decode(current.payload))
        return json_payload.encode(restored, what=f"schedule {name!r}: the payload")

    # ------------------------------------------------------------------------------------- writes

    async def create(
        self, spec: CronSpec, *, enabled: bool = True, remedy: str | None = None
    ) -> ScheduleView:
        """Store a new schedule; Conflict if the name is taken.

        With ``remedy`` its kind and arguments are checked against what workers have published
        (``check_published``); that is what to pass to skip the check.
        """
        checked(spec, where=f"schedule {spec.name!r}")
        if remedy is not None:
            await self._check_payload(spec.kind, spec.payload, remedy)
        schedule = Schedule(**asdict(spec), enabled=enabled)
        if enabled:
            schedule = replace(schedule, next_at=first_tick(spec, await self._now()))
        if not await self._store.schedules.put(schedule, expect=0):
            raise Conflict(
                f"there is a schedule {spec.name!r} already: change it with `forge cron set`, "
                "or choose another name"
            )
        detail = {"expression": spec.expression}
        after = field_values(schedule, _AUDITED)
        await self._trail.record("create schedule", spec.name, detail, after=after)
        return await self.get(spec.name)

    async def edit(
        self, name: str, change: ScheduleChange, *, remedy: str | None = None
    ) -> ScheduleView:
        """Change some fields; they override what code declares from then on.

        A schedule that was disabled because of an error is enabled again. ``remedy``: see
        ``create``; a payload that does not change is not checked.
        """
        changes = asdict(change)
        new_values = {field: value for field, value in changes.items() if value is not UNSET}
        if not new_values:
            raise BadOption(f"schedule {name!r}: say what to change, for example its expression")
        if remedy is not None and not isinstance(change.payload, UnsetType):
            await self._check_payload((await self._get(name)).kind, change.payload, remedy)

        def apply_edit(current: Schedule) -> Schedule:
            enabled = current.enabled or current.error is not None
            return replace(
                current, **new_values, edited=current.declared, enabled=enabled, error=None
            )

        detail: dict[str, Value] = {
            field: value for field, value in new_values.items() if not isinstance(value, bytes)
        }
        await self._change("edit schedule", name, apply_edit, detail)
        return await self.get(name)

    async def enable(self, name: str) -> ScheduleView:
        """Fire from the next tick on; ticks while it was disabled do not count as missed."""
        await self._change(
            "enable schedule", name, lambda current: replace(current, enabled=True, error=None)
        )
        return await self.get(name)

    async def disable(self, name: str) -> ScheduleView:
        """Do not fire until it is enabled again; clears its error."""
        await self._change(
            "disable schedule", name, lambda current: replace(current, enabled=False, error=None)
        )
        return await self.get(name)

    async def delete(self, name: str) -> None:
        """Delete a schedule; its jobs stay. The next worker that starts creates a declared schedule
        again: disable it instead."""
        before = field_values(await self._get(name), _AUDITED)
        if not await self._store.schedules.delete(name):
            raise not_found(name)
        await self._trail.record("delete schedule", name, before=before)

    async def trigger(
        self,
        name: str,
        *,
        queue_of: Callable[[str], str | None] = lambda kind: None,
        declaration_of: Callable[[str], Declaration | None] = lambda kind: None,
        prepare: Callable[[NewJob], NewJob] = lambda job: job,
    ) -> Fire:
        """Enqueue its job now, with the options, limits and overlap policy of a tick. ``queue_of``
        and ``declaration_of`` say what the program's own task declares for a kind; ``prepare``
        applies the enqueue hooks."""
        schedule = await self._get(name)
        kinds = await PublishedKinds.read(self._store)
        kind = schedule.kind
        job = kinds.scheduled_job(schedule, declared=declaration_of(kind), queue=queue_of(kind))
        fire = await self._store.schedules.trigger(name, prepare(job))
        if fire is None:
            raise not_found(name)
        await self._trail.record(
            "run schedule", name, {"job": fire.job_id, "outcome": fire.outcome}
        )
        return fire

    # -------------------------------------------------------------------------------------- parts

    async def _check_payload(self, kind: str, payload: bytes, remedy: str) -> None:
        await check_published(self._store, kind, json_payload.decode(payload), remedy=remedy)

    async def _change(
        self,
        action: str,
        name: str,
        change: Callable[[Schedule], Schedule],
        detail: Mapping[str, Value] = {},
    ) -> None:
        for _ in range(_MAX_TRIES):
            current = await self._get(name)
            changed = change(current)
            if changed.enabled or _spec_changed(current, changed):
                checked(changed, where=f"schedule {name!r}")
            if not changed.enabled:
                changed = replace(changed, next_at=None)
            elif (
                not current.enabled or _timing_changed(current, changed) or current.next_at is None
            ):
                next_at = first_tick(changed, await self._now(), last_at=current.last_at)
                changed = replace(changed, next_at=next_at)
            if await self._store.schedules.put(changed, expect=current.version):
                await self._trail.record(
                    action,
                    name,
                    {**detail, **_payload_detail(current.payload, changed.payload)},
                    before=field_values(current, _AUDITED),
                    after=field_values(changed, _AUDITED),
                )
                return
        raise Conflict(f"schedule {name!r} changes all the time: try again")

    async def _get(self, name: str) -> Schedule:
        schedule = await self._store.schedules.get(name)
        if schedule is None:
            raise not_found(name)
        return schedule

    async def _now(self) -> int:
        return await self._store.now()


def schedule_view(schedule: Schedule) -> ScheduleView:
    """The view of a stored schedule."""
    return ScheduleView(
        name=schedule.name,
        expression=schedule.expression,
        tz=schedule.zone,
        kind=schedule.kind,
        queue=schedule.queue,
        payload=decode_redacted(schedule.payload, reveal=False),
        missed=schedule.missed,
        missed_limit=schedule.missed_limit,
        overlap=schedule.overlap,
        jitter_s=schedule.jitter_s,
        max_attempts=schedule.max_attempts,
        enabled=schedule.enabled,
        declared=schedule.declared,
        edited=schedule.edited,
        next_at=optional_datetime(schedule.next_at),
        last_at=optional_datetime(schedule.last_at),
        error=schedule.error,
        updated_at=to_datetime(schedule.updated_at),
    )


def fire_view(fire: Fire) -> FireView:
    """The view of a stored fire."""
    return FireView(
        tick=to_datetime(fire.tick),
        at=to_datetime(fire.at),
        outcome=fire.outcome,
        job_id=fire.job_id,
        late_s=max(fire.at - fire.tick, 0) / SECOND,
        missed=fire.missed,
    )


def _timing_changed(current: Schedule, changed: Schedule) -> bool:
    return (current.expression, current.zone) != (changed.expression, changed.zone)


def _spec_changed(current: Schedule, changed: Schedule) -> bool:
    return any(getattr(current, name) != getattr(changed, name) for name in _SPEC_FIELDS)


def _payload_detail(before: bytes, after: bytes) -> dict[str, Value]:
    """The names of the payload's fields that were added, changed or removed."""
    old, new = json_payload.decode(before), json_payload.decode(after)
    if old == new:
        return {}
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {"payload_changed": True}
    old, new = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return {"payload_changed": ", ".join(names[:_MAX_PAYLOAD_FIELDS])}


def not_found(name: str) -> NotFound:
    """The error for an unknown schedule."""
    return NotFound(f"there is no schedule {name!r}: see `forge cron list`")
