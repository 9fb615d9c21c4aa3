"""Starlette: a lifespan with an embedded worker, and the Forge of a request.

::

    app = Starlette(routes=[...], lifespan=lifespan(forge, queues=["mail"]))
"""

from typing import Any

from forge_jobs.app import Forge
from forge_jobs.core.errors import Refused

from .lifespan import lifespan

try:
    from starlette.requests import HTTPConnection
except ImportError as error:
    raise ImportError(
        "forge_jobs.integrations.starlette needs Starlette: pip install 'forge-jobs[web]'"
    ) from error

__all__ = ["get_forge", "lifespan"]


def get_forge(connection: HTTPConnection) -> Forge:
    """The Forge of the application that serves this request or websocket. With FastAPI it is the
    type of a parameter: ``CurrentForge``.

    >>> from forge_jobs.integrations.starlette import get_forge
    >>> async def endpoint(request):
    ...     await get_forge(request).aenqueue("send", {"to": "a@b.c"})
    """
    app: Any = connection.app
    found = getattr(app.state, "forge", None)
    if not isinstance(found, Forge):
        raise Refused(
            "this application has no Forge: start it with lifespan=lifespan(forge); in tests use "
            "`with TestClient(app)`, which runs the lifespan"
        )
    return found
