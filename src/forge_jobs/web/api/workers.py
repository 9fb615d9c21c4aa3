"""Worker processes over HTTP."""

import asyncio

from msgspec import Struct

from forge_jobs.ops import look
from forge_jobs.ops.views import WorkerView
from forge_jobs.web.desk import Desk

from .route import Routes
from .words import Body, QueueName, WorkerName

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
async def processes(desk: Desk, query: OfQueue) -> tuple[WorkerView, ...]:
    """Living worker processes, of one queue or all."""
    wanted = query.queue_name
    seen = await look.workers(desk.store, clock=desk.clock)
    return tuple(worker for worker in seen if wanted is None or wanted in worker.queues)


@routes.get("/queue/workers")
async def workers(desk: Desk) -> Workers:
    """Living worker processes, and queues that none of them serves."""
    seen, queues = await asyncio.gather(
        look.workers(desk.store, clock=desk.clock), look.queues(desk.store, clock=desk.clock)
    )
    return Workers(workers=seen, unassigned_queues=look.unserved(queues))


@routes.post("/workers/{worker}/quiet")
async def quiet(desk: Desk, worker: WorkerName, body: Quiet) -> Told:
    """Ask a worker to take no more jobs, or to go on."""
    return Told(await desk.operator.quiet(worker, quiet=body.quiet))
