"""Worker processes over HTTP."""

import asyncio

from msgspec import Struct

from forge_jobs.ops import queries
from forge_jobs.ops.views import WorkerView
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, QueueName, WorkerName
from .route import Routes

routes = Routes()


class OfQueue(Struct, frozen=True, kw_only=True):
    """Of one queue, or of all."""

    queue_name: QueueName | None = None


class Workers(Struct, frozen=True, kw_only=True):
    """Who works, and for which queues nobody does."""

    workers: tuple[WorkerView, ...]
    unassigned_queues: tuple[str, ...]


class Quiet(Body, frozen=True, kw_only=True):
    """Whether a worker takes no more jobs."""

    quiet: bool = True


class Told(Struct, frozen=True):
    """The worker that was told."""

    host_id: str


@routes.get("/queue/processes")
async def processes(desk: RequestContext, query: OfQueue) -> tuple[WorkerView, ...]:
    """Living worker processes, of one queue or all."""
    wanted = query.queue_name
    seen = await queries.workers(desk.store, clock=desk.clock)
    return tuple(worker for worker in seen if wanted is None or wanted in worker.queues)


@routes.get("/queue/workers")
async def workers(desk: RequestContext) -> Workers:
    """Living worker processes, and queues that none of them serves."""
    seen, queues = await asyncio.gather(
        queries.workers(desk.store, clock=desk.clock), queries.queues(desk.store, clock=desk.clock)
    )
    return Workers(workers=seen, unassigned_queues=queries.unserved(queues))


@routes.post("/workers/{worker}/quiet")
async def quiet(desk: RequestContext, worker: WorkerName, body: Quiet) -> Told:
    """Ask a worker to take no more jobs, or to go on."""
    return Told(await desk.operator.quiet(worker, quiet=body.quiet))
