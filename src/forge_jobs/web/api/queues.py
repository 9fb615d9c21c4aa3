"""Queues over HTTP."""

from msgspec import Struct

from forge_jobs.ops import look
from forge_jobs.ops.views import QueueView
from forge_jobs.web.desk import Desk

from .route import Routes

routes = Routes()


class Paused(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the queue starts nothing more."""

    paused: bool


@routes.get("/queue/overview")
async def overview(desk: Desk) -> tuple[QueueView, ...]:
    """Every queue with its settings, counts and who serves it."""
    return await look.queues(desk.store, clock=desk.clock)


@routes.post("/queue/{name}/paused")
async def paused(desk: Desk, name: str, body: Paused) -> None:
    """Pause a queue, or let it go on."""
    if body.paused:
        await desk.operator.pause(name)
    else:
        await desk.operator.resume(name)
