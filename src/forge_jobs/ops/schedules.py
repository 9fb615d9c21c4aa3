"""Schedules for people: looking at them, and everything an operator may do to them.

An edit never brings a tick back: each one is stored only if the schedule is still as it was read.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption, Conflict, NotFound
from forge_jobs.core.instant import SECOND, to_datetime
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.schedule_ticks import checked, first_tick
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.published_kinds import PublishedKinds
from forge_jobs.store.schedules import FIRES_KEPT, Fire, FireOutcome, Schedule
from forge_jobs.store.store import Store

from .audit import Audit, AuditEntry, StoreAudit
from .queries import shown, unhidden
from .store_time import entry_time
from .views import View, moment

_TRIES = 20
_SAID = CronSpec.__struct_fields__
_Detail = Mapping[str, str | int | float | bool | None]
_NOTHING: _Detail = {}


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule as people read it.

    ``declared``: code declares it; ``edited``: what an operator set holds instead. ``queue`` None:
    the queue of the kind. ``error`` says why it was disabled, if nobody did that.
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
    """A tick of the past. ``missed``: earlier ticks that were let go with it, counted to 100."""

    tick: datetime
    at: datetime
    outcome: FireOutcome
    job_id: str | None
    late_s: float
    missed: int


class ScheduleChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New values for some fields of a schedule; UNSET ones stay."""

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
    """The schedules of one store in the hands of ``actor``."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._actor = actor
        self._audit = audit or StoreAudit(store)
        self._clock = clock

    # --------------------------------------------------------------------------------------- look

    async def all(self) -> tuple[ScheduleView, ...]:
        """All schedules, by name."""
        return tuple(schedule_view(one) for one in await self._store.schedules.all())

    async def get(self, name: str) -> ScheduleView:
        """One schedule, or NotFound."""
        return schedule_view(await self._known(name))

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> tuple[FireView, ...]:
        """Its last fires, newest first; NotFound for an unknown schedule."""
        await self._known(name)
        most = max(0, min(limit, FIRES_KEPT))
        return tuple(map(fire_view, await self._store.schedules.history(name, limit=most)))

    async def payload(self, name: str, edited: object) -> bytes:
        """An edited payload for the schedule, in which hidden secrets stand for what they hide."""
        known = await self._known(name)
        whole = unhidden(edited, json_payload.decode(known.payload))
        return json_payload.encode(whole, what=f"schedule {name!r}: the payload")

    # ---------------------------------------------------------------------------------------- act

    async def create(self, said: CronSpec, *, enabled: bool = True) -> ScheduleView:
        """Store a new schedule; Conflict when there is one of that name."""
        checked(said, where=f"schedule {said.name!r}")
        fresh = Schedule(**asdict(said), enabled=enabled)
        if enabled:
            fresh = replace(fresh, next_at=first_tick(said, await self._now()))
        if not await self._store.schedules.put(fresh, expect=0):
            raise Conflict(
                f"there is a schedule {said.name!r} already: change it with `forge cron set`, "
                "or choose another name"
            )
        await self._note("create schedule", said.name, {"expression": said.expression})
        return await self.get(said.name)

    async def edit(self, name: str, change: ScheduleChange) -> ScheduleView:
        """Change what a schedule says; what code declares no longer holds for it afterwards.

        One that was disabled because it could not be read is in use again.
        """
        asked = asdict(change)
        given = {field: value for field, value in asked.items() if value is not UNSET}
        if not given:
            raise BadOption(f"schedule {name!r}: say what to change, for example its expression")

        def edited(known: Schedule) -> Schedule:
            enabled = known.enabled or known.error is not None
            return replace(known, **given, edited=known.declared, enabled=enabled, error=None)

        await self._change(name, edited)
        detail = {field: value for field, value in given.items() if not isinstance(value, bytes)}
        await self._note("edit schedule", name, detail)
        return await self.get(name)

    async def enable(self, name: str) -> ScheduleView:
        """Fire from the next tick on; ticks while it was disabled are not missed ones."""
        await self._change(name, lambda known: replace(known, enabled=True, error=None))
        await self._note("enable schedule", name)
        return await self.get(name)

    async def disable(self, name: str) -> ScheduleView:
        """Fire no more until it is enabled again, whatever was wrong with it before."""
        await self._change(name, lambda known: replace(known, enabled=False, error=None))
        await self._note("disable schedule", name)
        return await self.get(name)

    async def delete(self, name: str) -> None:
        """Remove a schedule; its jobs stay. One that code declares comes back with the next worker
        that starts: disable it instead."""
        if not await self._store.schedules.delete(name):
            raise _not_found(name)
        await self._note("delete schedule", name)

    async def trigger(
        self,
        name: str,
        *,
        queue_of: Callable[[str], str | None] = lambda kind: None,
        prepare: Callable[[NewJob], NewJob] = lambda job: job,
    ) -> Fire:
        """Store its job now, by the rules of a tick: same queue, limits and overlap policy.
        ``queue_of`` names the queue that the program's own task declares for a kind; ``prepare``
        applies the hooks to the job."""
        known = await self._known(name)
        kinds = await PublishedKinds.read(self._store)
        job = kinds.scheduled_job(known, declared=queue_of(known.kind))
        fire = await self._store.schedules.trigger(name, prepare(job))
        if fire is None:
            raise _not_found(name)
        await self._note("run schedule", name, {"job": fire.job_id, "outcome": fire.outcome})
        return fire

    # -------------------------------------------------------------------------------------- parts

    async def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> None:
        for _ in range(_TRIES):
            known = await self._known(name)
            wanted = change(known)
            if wanted.enabled or _says_otherwise(known, wanted):
                checked(wanted, where=f"schedule {name!r}")
            if not wanted.enabled:
                wanted = replace(wanted, next_at=None)
            elif not known.enabled or _moves(known, wanted) or known.next_at is None:
                next_at = first_tick(wanted, await self._now(), last_at=known.last_at)
                wanted = replace(wanted, next_at=next_at)
            if await self._store.schedules.put(wanted, expect=known.version):
                return
        raise Conflict(f"schedule {name!r} changes all the time: try again")

    async def _known(self, name: str) -> Schedule:
        known = await self._store.schedules.get(name)
        if known is None:
            raise _not_found(name)
        return known

    async def _now(self) -> int:
        return await self._store.now()

    async def _note(self, action: str, subject: str, detail: _Detail = _NOTHING) -> None:
        await self._audit.record(
            AuditEntry(
                at=await entry_time(self._store, self._clock),
                actor=self._actor,
                action=action,
                subject=subject,
                detail=detail,
            )
        )


def schedule_view(known: Schedule) -> ScheduleView:
    """A stored schedule as people read it."""
    return ScheduleView(
        name=known.name,
        expression=known.expression,
        tz=known.zone,
        kind=known.kind,
        queue=known.queue,
        payload=shown(known.payload, reveal=False),
        missed=known.missed,
        missed_limit=known.missed_limit,
        overlap=known.overlap,
        jitter_s=known.jitter_s,
        max_attempts=known.max_attempts,
        enabled=known.enabled,
        declared=known.declared,
        edited=known.edited,
        next_at=moment(known.next_at),
        last_at=moment(known.last_at),
        error=known.error,
        updated_at=to_datetime(known.updated_at),
    )


def fire_view(fire: Fire) -> FireView:
    """A fire as people read it."""
    return FireView(
        tick=to_datetime(fire.tick),
        at=to_datetime(fire.at),
        outcome=fire.outcome,
        job_id=fire.job_id,
        late_s=max(fire.at - fire.tick, 0) / SECOND,
        missed=fire.missed,
    )


def _moves(known: Schedule, wanted: Schedule) -> bool:
    return (known.expression, known.zone) != (wanted.expression, wanted.zone)


def _says_otherwise(known: Schedule, wanted: Schedule) -> bool:
    return any(getattr(known, name) != getattr(wanted, name) for name in _SAID)


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}: see `forge cron list`")
