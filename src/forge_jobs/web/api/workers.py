"""Worker processes over HTTP."""

import asyncio

from msgspec import Struct

from forge_jobs.ops import queries
from forge_jobs.ops.views import WorkerView
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, QueueName, WorkerName, renamed
from .route import Routes

routes = Routes()


class ProcessesQuery(Struct, frozen=True, kw_only=True):
    """The processes of one queue, or of all."""

    queue: QueueName | None = None
    queue_name: QueueName | None = None


class WorkerList(Struct, frozen=True, kw_only=True):
    """Live worker processes, and queues that none of them serves."""

    workers: tuple[WorkerView, ...]
    unassigned_queues: tuple[str, ...]


class QuietBody(Body, frozen=True, kw_only=True):
    """Whether a worker claims no more jobs."""

    quiet: bool = True


class QuietedWorker(Struct, frozen=True):
    """The worker that got the request."""

    host_id: str


@routes.get("/queue/processes")
async def list_processes(context: RequestContext, query: ProcessesQuery) -> tuple[WorkerView, ...]:
    """Live worker processes, of one queue or all."""
    queue_name = renamed("queue", query.queue, "queue_name", query.queue_name)
    workers = await queries.workers(context.store, clock=context.clock)
    return tuple(worker for worker in workers if queue_name is None or queue_name in worker.queues)


@routes.get("/queue/workers")
async def list_workers(context: RequestContext) -> WorkerList:
    """Live worker processes, and queues without one."""
    workers, queues = await asyncio.gather(
        queries.workers(context.store, clock=context.clock),
        queries.queues(context.store, clock=context.clock),
    )
    return WorkerList(workers=workers, unassigned_queues=queries.unserved_queues(queues))


@routes.post("/workers/{worker}/quiet")
async def set_quiet(context: RequestContext, worker: WorkerName, body: QuietBody) -> QuietedWorker:
    """Ask a worker to claim no more jobs, or to claim again."""
    return QuietedWorker(await context.job_actions.quiet(worker, quiet=body.quiet))
