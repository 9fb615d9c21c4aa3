"""FastAPI: a lifespan with an embedded worker, ``Depends`` in tasks, the Forge as a dependency.

::

    app = FastAPI(lifespan=lifespan(forge, queues=["mail"]))

    @forge.task(queue="mail")
    @inject
    async def send(to: str, session: Annotated[AsyncSession, Depends(get_session)]) -> None: ...

    @app.post("/send")
    async def post_send(forge: CurrentForge) -> None: ...
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any, Unpack

from forge_jobs.app import Forge
from forge_jobs.app.worker import Queues, WorkerKeywords

from . import lifespan as asgi

try:
    from fastapi import Depends, FastAPI

    from .dependencies import APPLICATIONS, inject
    from .starlette import get_forge
except ImportError as error:
    raise ImportError(
        "forge_jobs.integrations.fastapi needs FastAPI: pip install 'forge-jobs[fastapi]'"
    ) from error

__all__ = ["CurrentForge", "get_forge", "inject", "lifespan", "overrides_of"]

CurrentForge = Annotated[Forge, Depends(get_forge)]


def lifespan(
    forge: Forge,
    *,
    worker: bool = True,
    queues: Queues | None = None,
    app_lifespan: Callable[[Any], Any] | None = None,
    **options: Unpack[WorkerKeywords],
) -> asgi.Lifespan:
    """``forge_jobs.integrations.starlette.lifespan``; as long as it runs, tasks of this process
    keep to ``app.dependency_overrides``."""
    inner = asgi.lifespan(forge, worker=worker, queues=queues, app_lifespan=app_lifespan, **options)

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncGenerator[asgi.State]:
        async with AsyncExitStack() as stack:
            stack.enter_context(overrides_of(app))
            yield await stack.enter_async_context(inner(app))

    return run


@contextmanager
def overrides_of(app: FastAPI) -> Generator[None]:
    """Within this block tasks of this process keep to ``app.dependency_overrides``; for tests that
    run jobs without the lifespan.

    >>> from fastapi import FastAPI
    >>> from forge_jobs.integrations.fastapi import overrides_of
    >>> app = FastAPI()
    >>> with overrides_of(app):
    ...     ran = forge.drain().run()
    """
    APPLICATIONS.append(app)
    try:
        yield
    finally:
        APPLICATIONS.remove(app)
