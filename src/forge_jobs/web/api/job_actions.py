"""Acting on jobs over HTTP: enqueue, and what an operator does to jobs they can name.

Whatever might be long runs as an operation, see ``bulk``; the routes here that act by state answer
when they are done, in bounded steps.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.actions import Retention
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
    Moment,
    Payload,
    Priority,
    QueueName,
    Seconds,
    Status,
    Words,
    bounded,
    states,
)
from .route import Routes

routes = Routes()

DEMO_KIND = "noop_echo"
DEMO_QUEUE = "default"


class NewJob(Body, frozen=True, kw_only=True):
    """A job to store. Without ``queue_name`` it goes to the queue of its kind."""

    kind: KindName
    payload: Payload = None
    queue_name: QueueName | None = None
    dedupe_key: KeyText | None = None
    run_at: Moment | None = None
    delay_seconds: Seconds | None = None
    priority: Priority | None = None
    max_attempts: Attempts | None = None
    tags: Annotated[tuple[KeyText, ...], Meta(max_length=32)] | None = None


class Stored(Struct, frozen=True, kw_only=True):
    """The job; ``duplicate``: its dedupe key was taken, and this is the job that holds it."""

    id: str
    duplicate: bool
    status: JobStatus


class Demo(Body, frozen=True, kw_only=True):
    """What the sample job echoes."""

    payload: Payload = None


class These(Body, frozen=True, kw_only=True):
    """Jobs by id."""

    ids: Ids


class Cancelled(Body, frozen=True, kw_only=True):
    """Jobs by id, and what they are told."""

    ids: Ids
    reason: Words = ""


class Done(Struct, frozen=True, kw_only=True):
    """``changed`` were moved or removed, ``requested`` are running and were asked to stop,
    ``skipped`` are in a state the action does not apply to, ``missing`` do not exist."""

    count: int
    changed: int
    requested: int
    skipped: int
    missing: int


class OfStatus(Body, frozen=True, kw_only=True):
    """Jobs by state, of one queue or all."""

    status: Status
    queue_name: QueueName | None = None


class OlderThan(Body, frozen=True, kw_only=True):
    """Jobs by age, of one queue or all."""

    days: Days
    queue_name: QueueName | None = None


class Copy(Body, frozen=True, kw_only=True):
    """What the copy gets instead of the payload; fields shown as hidden keep what they hid."""

    payload: Any | UnsetType = UNSET


class Copied(Struct, frozen=True):
    """The new job."""

    id: str


class Removed(Struct, frozen=True):
    """How many jobs were removed."""

    deleted: int


@routes.post("/jobs/enqueue")
async def enqueue(desk: RequestContext, body: NewJob) -> Stored:
    """Store a job."""
    options: dict[str, Any] = {
        "queue": body.queue_name,
        "dedupe_key": body.dedupe_key,
        "run_at": None if body.run_at is None else bounded("run_at", body.run_at),
        "delay": body.delay_seconds,
        "priority": body.priority,
        "max_attempts": body.max_attempts,
        "tags": body.tags,
    }
    return await _stored(desk, body.kind, body.payload, options)


@routes.post("/jobs/enqueue-demo")
async def enqueue_demo(desk: RequestContext, body: Demo) -> Stored:
    """Store a sample job that echoes its payload."""
    return await _stored(desk, DEMO_KIND, body.payload, {"queue": DEMO_QUEUE})


@routes.post("/jobs/retry")
async def retry(desk: RequestContext, body: These) -> Done:
    """Bring failed, dead and cancelled jobs back, with all their attempts."""
    return _done(await desk.operator.retry(Selection(ids=body.ids)))


@routes.post("/jobs/requeue")
async def requeue(desk: RequestContext, body: These) -> Done:
    """The same as retry."""
    return await retry(desk, body)


@routes.post("/jobs/retry-all-failed")
async def retry_all_failed(desk: RequestContext) -> Done:
    """Bring back every job that failed and waits for its next attempt."""
    chosen = Filter(statuses=(JobStatus.FAILED,))
    return _done(await desk.operator.retry(Selection(filter=chosen)))


@routes.post("/jobs/retry-all-by-status")
async def retry_all_by_status(desk: RequestContext, body: OfStatus) -> Done:
    """Bring back every job of a state: failed, dead or cancelled."""
    return _done(await desk.operator.retry(_of(body)))


@routes.post("/jobs/run-now/{id}")
async def run_now(desk: RequestContext, id: JobId) -> bool:
    """Start a scheduled job or a waiting retry now; whether it was one."""
    return (await desk.operator.run_now(Selection(ids=(id,)))).changed > 0


@routes.post("/jobs/cancel")
async def cancel(desk: RequestContext, body: Cancelled) -> Done:
    """Cancel jobs that wait, and ask running ones to stop."""
    return _done(await desk.operator.cancel(Selection(ids=body.ids), reason=body.reason))


@routes.post("/jobs/duplicate/{id}")
async def duplicate(desk: RequestContext, id: JobId, body: Copy) -> Copied:
    """Store a job once more, with its own payload or an edited one."""
    if body.payload is not UNSET:
        return Copied(await desk.operator.duplicate_with(id, body.payload))
    return Copied(await desk.operator.duplicate_one(id))


@routes.post("/jobs/delete", role=Role.ADMIN)
async def delete(desk: RequestContext, body: These) -> Done:
    """Remove jobs that do not run; ask running ones to stop."""
    return _done(await desk.operator.delete(Selection(ids=body.ids)))


@routes.post("/jobs/delete-by-status", role=Role.ADMIN)
async def delete_by_status(desk: RequestContext, body: OfStatus) -> Done:
    """Remove every job of a state that does not run."""
    return _done(await desk.operator.delete(_of(body)))


@routes.post("/jobs/delete-done-older-than", role=Role.ADMIN)
async def delete_done_older_than(desk: RequestContext, body: OlderThan) -> Removed:
    """Remove jobs that were done so many days ago."""
    names = [body.queue_name]
    if body.queue_name is None:
        names = list({count.queue: None for count in await desk.store.metrics.counts()})
    deleted = 0
    for name in names:
        keep = Retention(queue=name, done_s=body.days * 86_400.0, dead_s=None, cancelled_s=None)
        deleted += await desk.operator.purge(keep)
    return Removed(deleted)


async def _stored(
    desk: RequestContext, kind: str, payload: Payload, options: dict[str, Any]
) -> Stored:
    given = {name: value for name, value in options.items() if value is not None}
    job = await desk.forge.aenqueue(kind, payload, **given)
    detail = {"kind": kind, "duplicate": job.duplicate}
    await desk.operator.note("enqueue", job.id, detail)
    return Stored(id=job.id, duplicate=job.duplicate, status=job.status)


def _of(body: OfStatus) -> Selection:
    return Selection(filter=Filter(queue=body.queue_name, statuses=states((body.status,))))


def _done(acted: Acted) -> Done:
    return Done(
        count=acted.changed + acted.requested,
        changed=acted.changed,
        requested=acted.requested,
        skipped=acted.skipped,
        missing=acted.missing,
    )
