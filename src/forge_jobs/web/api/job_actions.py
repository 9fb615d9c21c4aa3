"""Actions on jobs over HTTP: enqueue, and actions on jobs by id or by state.

The routes by state work in batches and respond when all are done; ``bulk`` runs in the background.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.actions import Retention
from forge_jobs.ops.published_check import check_published
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import (
    Attempts,
    Body,
    Days,
    Ids,
    JobId,
    KeyText,
    KindName,
    Payload,
    Priority,
    QueueName,
    ReasonText,
    Seconds,
    Status,
    Timestamp,
    check_time,
    job_statuses,
    renamed,
)
from .route import Routes

routes = Routes()

DEMO_KIND = "noop_echo"
DEMO_QUEUE = "default"


class EnqueueBody(Body, frozen=True, kw_only=True):
    """A job to enqueue; what is left out is what its task declares. ``force``: kind and arguments
    are not checked against what workers have published."""

    kind: KindName
    payload: Payload = None
    queue: QueueName | None = None
    queue_name: QueueName | None = None
    dedupe_key: KeyText | None = None
    run_at: Timestamp | None = None
    delay_seconds: Seconds | None = None
    priority: Priority | None = None
    max_attempts: Attempts | None = None
    tags: Annotated[tuple[KeyText, ...], Meta(max_length=32)] | None = None
    force: bool = False


class EnqueuedJob(Struct, frozen=True, kw_only=True):
    """The job; ``duplicate``: the dedupe key was taken, and this is the job that holds it."""

    id: str
    duplicate: bool
    status: JobStatus


class EnqueueDemoBody(Body, frozen=True, kw_only=True):
    """The payload that the sample job echoes."""

    payload: Payload = None


class JobIdsBody(Body, frozen=True, kw_only=True):
    """Jobs by id."""

    ids: Ids


class CancelBody(Body, frozen=True, kw_only=True):
    """Jobs by id, and the reason for them."""

    ids: Ids
    reason: ReasonText = ""


class ActionResult(Struct, frozen=True, kw_only=True):
    """``changed`` were changed or deleted, ``requested`` are running and got a cancel request,
    ``skipped`` are in a state the action does not apply to, ``missing`` do not exist."""

    count: int
    changed: int
    requested: int
    skipped: int
    missing: int


class ByStatusBody(Body, frozen=True, kw_only=True):
    """Jobs by state, of one queue or all."""

    status: Status
    queue: QueueName | None = None
    queue_name: QueueName | None = None


class OlderThanBody(Body, frozen=True, kw_only=True):
    """Jobs by age, of one queue or all."""

    days: Days
    queue: QueueName | None = None
    queue_name: QueueName | None = None


class DuplicateBody(Body, frozen=True, kw_only=True):
    """Another payload for the copy; redacted values in it get the original secrets."""

    payload: Any | UnsetType = UNSET


class DuplicatedJob(Struct, frozen=True):
    """The new job."""

    id: str


class DeletedJobs(Struct, frozen=True):
    """How many jobs were deleted."""

    deleted: int


@routes.post("/jobs/enqueue")
async def enqueue(context: RequestContext, body: EnqueueBody) -> EnqueuedJob:
    """Enqueue a job."""
    options: dict[str, Any] = {
        "queue": renamed("queue", body.queue, "queue_name", body.queue_name),
        "dedupe_key": body.dedupe_key,
        "run_at": None if body.run_at is None else check_time("run_at", body.run_at),
        "delay": body.delay_seconds,
        "priority": body.priority,
        "max_attempts": body.max_attempts,
        "tags": body.tags,
    }
    if not body.force and body.kind not in context.forge.tasks:
        payload = {} if body.payload is None else body.payload
        await check_published(context.store, body.kind, payload, remedy='"force": true')
    return await _enqueue(context, body.kind, body.payload, options)


@routes.post("/jobs/enqueue-demo")
async def enqueue_demo(context: RequestContext, body: EnqueueDemoBody) -> EnqueuedJob:
    """Enqueue a sample job that echoes its payload."""
    return await _enqueue(context, DEMO_KIND, body.payload, {"queue": DEMO_QUEUE})


@routes.post("/jobs/retry")
async def retry(context: RequestContext, body: JobIdsBody) -> ActionResult:
    """Make failed, dead and cancelled jobs pending again, with all their attempts."""
    return _result(await context.job_actions.retry(Selection(ids=body.ids)))


@routes.post("/jobs/requeue")
async def requeue(context: RequestContext, body: JobIdsBody) -> ActionResult:
    """The same as retry."""
    return await retry(context, body)


@routes.post("/jobs/retry-all-failed")
async def retry_all_failed(context: RequestContext) -> ActionResult:
    """Retry every job that failed and waits for its next attempt."""
    failed_jobs = Filter(statuses=(JobStatus.FAILED,))
    return _result(await context.job_actions.retry(Selection(filter=failed_jobs)))


@routes.post("/jobs/retry-all-by-status")
async def retry_all_by_status(context: RequestContext, body: ByStatusBody) -> ActionResult:
    """Retry every job of a state: failed, dead or cancelled."""
    return _result(await context.job_actions.retry(_by_status(body)))


@routes.post("/jobs/run-now/{id}")
async def run_now(context: RequestContext, id: JobId) -> bool:
    """Make a scheduled job or a waiting retry due now; false if it was neither."""
    return (await context.job_actions.run_now(Selection(ids=(id,)))).changed > 0


@routes.post("/jobs/cancel")
async def cancel(context: RequestContext, body: CancelBody) -> ActionResult:
    """Cancel waiting jobs, and request the cancellation of running ones."""
    return _result(await context.job_actions.cancel(Selection(ids=body.ids), reason=body.reason))


@routes.post("/jobs/duplicate/{id}")
async def duplicate(context: RequestContext, id: JobId, body: DuplicateBody) -> DuplicatedJob:
    """Enqueue a copy of a job, with its own payload or an edited one."""
    if body.payload is not UNSET:
        return DuplicatedJob(await context.job_actions.duplicate_with(id, body.payload))
    return DuplicatedJob(await context.job_actions.duplicate_one(id))


@routes.post("/jobs/delete", role=Role.ADMIN)
async def delete(context: RequestContext, body: JobIdsBody) -> ActionResult:
    """Delete jobs that are not running; running ones get a cancel request."""
    return _result(await context.job_actions.delete(Selection(ids=body.ids)))


@routes.post("/jobs/delete-by-status", role=Role.ADMIN)
async def delete_by_status(context: RequestContext, body: ByStatusBody) -> ActionResult:
    """Delete every job of a state other than running."""
    return _result(await context.job_actions.delete(_by_status(body)))


@routes.post("/jobs/delete-done-older-than", role=Role.ADMIN)
async def delete_done_older_than(context: RequestContext, body: OlderThanBody) -> DeletedJobs:
    """Delete jobs that were done so many days ago."""
    chosen = renamed("queue", body.queue, "queue_name", body.queue_name)
    names = [chosen]
    if chosen is None:
        names = list({count.queue: None for count in await context.store.metrics.counts()})
    deleted = 0
    for name in names:
        retention = Retention(
            queue=name, done_s=body.days * 86_400.0, dead_s=None, cancelled_s=None
        )
        deleted += await context.job_actions.purge(retention)
    return DeletedJobs(deleted)


async def _enqueue(
    context: RequestContext, kind: str, payload: Payload, options: dict[str, Any]
) -> EnqueuedJob:
    options_set = {name: value for name, value in options.items() if value is not None}
    job = await context.forge.aenqueue(kind, payload, check=False, **options_set)
    detail = {"kind": kind, "duplicate": job.duplicate}
    await context.job_actions.record_action("enqueue", job.id, detail)
    return EnqueuedJob(id=job.id, duplicate=job.duplicate, status=job.status)


def _by_status(body: ByStatusBody) -> Selection:
    queue = renamed("queue", body.queue, "queue_name", body.queue_name)
    return Selection(filter=Filter(queue=queue, statuses=job_statuses((body.status,))))


def _result(totals: Acted) -> ActionResult:
    return ActionResult(
        count=totals.changed + totals.requested,
        changed=totals.changed,
        requested=totals.requested,
        skipped=totals.skipped,
        missing=totals.missing,
    )
