"""Schedules over HTTP."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload as json_payload
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import Overlap
from forge_jobs.core.schedule_ticks import spec
from forge_jobs.ops.schedule_runs import ScheduleRuns, schedule_runs
from forge_jobs.ops.schedules import FireView, ScheduleChange, ScheduleView, fire_view
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import (
    Attempts,
    Body,
    KindName,
    Payload,
    QueueName,
    ScheduleName,
    renamed,
    required,
)
from .route import Routes

routes = Routes()

Expression = Annotated[str, Meta(min_length=1, max_length=200)]
Zone = Annotated[str, Meta(min_length=1, max_length=100)]
Jitter = Annotated[float, Meta(ge=0, le=86_400)]
MissedLimit = Annotated[int, Meta(ge=1, le=10_000)]
MissedPolicy = Literal["skip", "once", "all"]
OverlapPolicy = Literal["skip", "allow"]
_FORCE = '"force": true'


class CreateScheduleBody(Body, frozen=True, kw_only=True):
    """A schedule to store; its jobs have what their task declares. ``force``: kind and
    arguments are not checked against what workers have published."""

    name: ScheduleName
    expression: Expression
    kind: KindName
    tz: Zone = "UTC"
    queue: QueueName | None = None
    payload: Payload = None
    missed: MissedPolicy = "once"
    missed_limit: MissedLimit = 100
    overlap: OverlapPolicy | None = None
    jitter_s: Jitter = 0
    max_attempts: Attempts | None = None
    enabled: bool = True
    force: bool = False


class EditScheduleBody(Body, frozen=True, kw_only=True):
    """New values; omitted fields do not change. ``queue`` and ``max_attempts`` null mean what the
    task declares. ``force``: do not check the arguments."""

    expression: Expression | UnsetType = UNSET
    tz: Zone | UnsetType = UNSET
    queue: QueueName | UnsetType | None = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    missed: MissedPolicy | UnsetType = UNSET
    missed_limit: MissedLimit | UnsetType = UNSET
    overlap: OverlapPolicy | UnsetType = UNSET
    jitter_s: Jitter | UnsetType = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET
    force: bool = False


class EnabledBody(Body, frozen=True, kw_only=True):
    """Whether the schedule fires."""

    enabled: bool


class ExpressionBody(Body, frozen=True, kw_only=True):
    """A cron expression."""

    expression: Expression | None = None
    expr: Expression | None = None


class DedupeBody(Body, frozen=True, kw_only=True):
    """Whether a tick is skipped while the job of an earlier one is not terminal."""

    dedupe: bool


class TriggerResult(Struct, frozen=True):
    """The enqueued job; null if the overlap policy skipped the tick."""

    job_id: str | None
    outcome: str


@routes.get("/cron")
async def list_schedules(context: RequestContext) -> tuple[ScheduleView, ...]:
    """All schedules."""
    return await context.schedule_actions.all()


@routes.post("/cron")
async def create(context: RequestContext, body: CreateScheduleBody) -> ScheduleView:
    """Create a schedule."""
    where = f"schedule {body.name!r}"
    data = json_payload.encode(body.payload or {}, what=f"{where}: the payload")
    schedule_spec = spec(
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
    return await context.schedule_actions.create(
        schedule_spec, enabled=body.enabled, remedy=None if body.force else _FORCE
    )


@routes.get("/cron/{name}")
async def get_schedule(context: RequestContext, name: ScheduleName) -> ScheduleView:
    """One schedule."""
    return await context.schedule_actions.get(name)


@routes.get("/cron/{name}/runs")
async def get_runs(context: RequestContext, name: ScheduleName) -> ScheduleRuns:
    """The last 30 runs with their results, the next five times, the expression in words, and why
    it does not run."""
    return await schedule_runs(context.store, name, clock=context.clock)


@routes.get("/cron/{name}/history")
async def history(context: RequestContext, name: ScheduleName) -> tuple[FireView, ...]:
    """The last ticks of a schedule, newest first."""
    return await context.schedule_actions.history(name)


@routes.put("/cron/{name}")
async def edit(context: RequestContext, name: ScheduleName, body: EditScheduleBody) -> ScheduleView:
    """Change fields of a schedule."""
    payload: bytes | UnsetType = UNSET
    if not isinstance(body.payload, UnsetType):
        payload = await context.schedule_actions.payload(name, body.payload)
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
    remedy = None if body.force else _FORCE
    return await context.schedule_actions.edit(name, change, remedy=remedy)


@routes.delete("/cron/{name}", role=Role.ADMIN)
async def delete(context: RequestContext, name: ScheduleName) -> None:
    """Delete a schedule; its jobs stay."""
    await context.schedule_actions.delete(name)


@routes.post("/cron/{name}/enabled")
async def set_enabled(context: RequestContext, name: ScheduleName, body: EnabledBody) -> None:
    """Enable or disable a schedule."""
    if body.enabled:
        await context.schedule_actions.enable(name)
    else:
        await context.schedule_actions.disable(name)


@routes.post("/cron/{name}/expr")
async def set_expression(context: RequestContext, name: ScheduleName, body: ExpressionBody) -> None:
    """Set the cron expression."""
    given = renamed("expression", body.expression, "expr", body.expr)
    change = ScheduleChange(expression=required("expression", given))
    await context.schedule_actions.edit(name, change)


@routes.post("/cron/{name}/dedupe")
async def set_dedupe(context: RequestContext, name: ScheduleName, body: DedupeBody) -> None:
    """Set whether ticks are skipped while an earlier job is not terminal."""
    overlap = Overlap.SKIP if body.dedupe else Overlap.ALLOW
    await context.schedule_actions.edit(name, ScheduleChange(overlap=overlap))


@routes.post("/cron/{name}/trigger")
async def trigger(context: RequestContext, name: ScheduleName) -> TriggerResult:
    """Enqueue the job of a schedule now."""
    fire = fire_view(await context.schedule_actions.trigger(name))
    return TriggerResult(fire.job_id, fire.outcome)
