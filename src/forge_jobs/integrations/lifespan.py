"""``lifespan(forge)``: opens and closes a Forge with an ASGI application, with a worker or without.

Needs no framework: FastAPI, Starlette and others call a lifespan with the application.
"""

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeAlias, Unpack

from forge_jobs.app import Forge
from forge_jobs.app.worker import Queues, WorkerKeywords
from forge_jobs.core.errors import BadOption, Refused

State: TypeAlias = "Mapping[str, Any] | None"
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    forge: Forge,
    *,
    worker: bool = True,
    queues: Queues | None = None,
    app_lifespan: Callable[[Any], Any] | None = None,
    **options: Unpack[WorkerKeywords],
) -> Lifespan:
    """A lifespan for ``FastAPI(lifespan=…)`` and ``Starlette(lifespan=…)``.

    With ``worker`` the application runs jobs in its own process: of ``queues`` and with the
    ``options`` of ``forge.worker``. ``app_lifespan`` is the application's own lifespan: what it
    sets up is there before the first job and after the last one, and what it yields is the state
    of requests. At the end running jobs get ``shutdown_timeout``, the rest go back to their queue,
    the worker deregisters, and the Forge is closed; it opens again when it is used again. Signals
    are left to the server.

    >>> from starlette.applications import Starlette
    >>> from forge_jobs.integrations.starlette import lifespan
    >>> app = Starlette(lifespan=lifespan(forge, queues=["mail:4"], shutdown_timeout="20s"))
    """
    if not isinstance(forge, Forge):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(
            f"lifespan(...) takes a Forge, not {type(forge).__name__}: "
            "write FastAPI(lifespan=lifespan(forge))"
        )
    own = app_lifespan
    if inspect.isasyncgenfunction(own):
        own = asynccontextmanager(own)

    @asynccontextmanager
    async def run(app: Any) -> AsyncGenerator[State]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_close, forge)
            state: State = None if own is None else await stack.enter_async_context(own(app))
            stack.push_async_callback(_close_mission_control, app)
            if worker:
                await stack.enter_async_context(forge.worker(queues, **options))
            if hasattr(app, "state"):
                app.state.forge = forge
            yield state

    return run


async def _close(forge: Forge) -> None:
    # Another application of this process may run a worker of the same Forge.
    with suppress(Refused):
        await forge.aclose()


async def _close_mission_control(app: Any) -> None:
    """End the background tasks of a mounted Mission Control: mounted applications get no lifespan
    of their own."""
    module = sys.modules.get("forge_jobs.web.app")
    if module is None:
        return
    for route in getattr(app, "routes", ()):
        mounted: Any = getattr(route, "app", None)
        if isinstance(mounted, module.MissionControl):
            await mounted.aclose()
