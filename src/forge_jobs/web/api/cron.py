"""Schedules over HTTP."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload as json_payload
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import Overlap
from forge_jobs.core.schedule_ticks import spec
from forge_jobs.ops.schedules import FireView, ScheduleChange, ScheduleView, fire_view
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import Attempts, Body, KindName, Payload, QueueName, ScheduleName
from .route import Routes

routes = Routes()

Expression = Annotated[str, Meta(min_length=1, max_length=200)]
Zone = Annotated[str, Meta(min_length=1, max_length=100)]
Jitter = Annotated[float, Meta(ge=0, le=86_400)]
MissedLimit = Annotated[int, Meta(ge=1, le=10_000)]
MissedWord = Literal["skip", "once", "all"]
OverlapWord = Literal["skip", "allow"]


class NewSchedule(Body, frozen=True, kw_only=True):
    """A schedule to store. Without ``queue`` its jobs go to the queue of their kind."""

    name: ScheduleName
    expression: Expression
    kind: KindName
    tz: Zone = "UTC"
    queue: QueueName | None = None
    payload: Payload = None
    missed: MissedWord = "once"
    missed_limit: MissedLimit = 100
    overlap: OverlapWord | None = None
    jitter_s: Jitter = 0
    max_attempts: Attempts | None = None
    enabled: bool = True


class EditedSchedule(Body, frozen=True, kw_only=True):
    """New values; what is not given stays. ``queue`` null means the queue of the kind."""

    expression: Expression | UnsetType = UNSET
    tz: Zone | UnsetType = UNSET
    queue: QueueName | UnsetType | None = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    missed: MissedWord | UnsetType = UNSET
    missed_limit: MissedLimit | UnsetType = UNSET
    overlap: OverlapWord | UnsetType = UNSET
    jitter_s: Jitter | UnsetType = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET


class Enabled(Body, frozen=True, kw_only=True):
    """Whether the schedule fires."""

    enabled: bool


class NewExpression(Body, frozen=True, kw_only=True):
    """When it fires."""

    expr: Expression


class Dedupe(Body, frozen=True, kw_only=True):
    """Whether a tick is skipped while the job of an earlier one is not over."""

    dedupe: bool


class Fired(Struct, frozen=True):
    """What a tick by hand did; without a job, an earlier one is not over yet."""

    job_id: str | None
    outcome: str


@routes.get("/cron")
async def listed(desk: RequestContext) -> tuple[ScheduleView, ...]:
    """All schedules."""
    return await desk.timetable.all()


@routes.post("/cron")
async def create(desk: RequestContext, body: NewSchedule) -> ScheduleView:
    """Create a schedule."""
    where = f"schedule {body.name!r}"
    data = json_payload.encode(body.payload or {}, what=f"{where}: the payload")
    said = spec(
        NewJob(kind=body.kind, queue=DEFAULT_QUEUE, payload=data),
        body.expression,
        name=body.name,
        queue=body.queue,
        max_attempts=body.max_attempts,
        tz=body.tz,
        missed=body.missed,
        missed_limit=body.missed_limit,
        overlap=body.overlap,
        jitter=body.jitter_s,
        where=where,
    )
    return await desk.timetable.create(said, enabled=body.enabled)


@routes.get("/cron/{name}")
async def one(desk: RequestContext, name: ScheduleName) -> ScheduleView:
    """One schedule."""
    return await desk.timetable.get(name)


@routes.get("/cron/{name}/history")
async def history(desk: RequestContext, name: ScheduleName) -> tuple[FireView, ...]:
    """The last ticks of a schedule, newest first."""
    return await desk.timetable.history(name)


@routes.put("/cron/{name}")
async def edit(desk: RequestContext, name: ScheduleName, body: EditedSchedule) -> ScheduleView:
    """Change what a schedule says."""
    payload: bytes | UnsetType = UNSET
    if not isinstance(body.payload, UnsetType):
        payload = await desk.timetable.payload(name, body.payload)
    change = ScheduleChange(
        expression=body.expression,
        zone=body.tz,
        queue=body.queue,
        payload=payload,
        missed=body.missed,
        missed_limit=body.missed_limit,
        overlap=body.overlap,
        jitter_s=body.jitter_s,
        max_attempts=body.max_attempts,
    )
    return await desk.timetable.edit(name, change)


@routes.delete("/cron/{name}", role=Role.ADMIN)
async def delete(desk: RequestContext, name: ScheduleName) -> None:
    """Remove a schedule; its jobs stay."""
    await desk.timetable.delete(name)


@routes.post("/cron/{name}/enabled")
async def enabled(desk: RequestContext, name: ScheduleName, body: Enabled) -> None:
    """Let a schedule fire, or not."""
    if body.enabled:
        await desk.timetable.enable(name)
    else:
        await desk.timetable.disable(name)


@routes.post("/cron/{name}/expr")
async def expression(desk: RequestContext, name: ScheduleName, body: NewExpression) -> None:
    """Set when a schedule fires."""
    await desk.timetable.edit(name, ScheduleChange(expression=body.expr))


@routes.post("/cron/{name}/dedupe")
async def dedupe(desk: RequestContext, name: ScheduleName, body: Dedupe) -> None:
    """Set whether ticks are skipped while an earlier job is not over."""
    overlap = Overlap.SKIP if body.dedupe else Overlap.ALLOW
    await desk.timetable.edit(name, ScheduleChange(overlap=overlap))


@routes.post("/cron/{name}/trigger")
async def trigger(desk: RequestContext, name: ScheduleName) -> Fired:
    """Store the job of a schedule now."""
    fire = fire_view(await desk.timetable.trigger(name))
    return Fired(fire.job_id, fire.outcome)
