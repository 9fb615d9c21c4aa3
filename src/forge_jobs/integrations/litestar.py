"""Litestar: a plugin with an embedded worker or none, ``forge: Forge`` and Mission Control."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack

from forge_jobs.app import Forge
from forge_jobs.app.worker import Queues, WorkerKeywords
from forge_jobs.core.errors import BadOption
from forge_jobs.web import Credentials, mission_control

from .lifespan import lifespan

try:
    from litestar import asgi
    from litestar.di import Provide
    from litestar.plugins import InitPlugin
except ImportError as error:
    raise ImportError(
        "forge_jobs.integrations.litestar needs Litestar: pip install 'forge-jobs[litestar]'"
    ) from error

if TYPE_CHECKING:
    from litestar.config.app import AppConfig
    from litestar.types import Receive, Scope, Send

    from forge_jobs.web.access.identity import Identify

__all__ = ["ForgePlugin"]


class ForgePlugin(InitPlugin):
    """Opens a Forge with the application, runs a worker in it, and gives handlers ``forge: Forge``.

    ``worker``, ``queues`` and ``options`` are those of ``lifespan``; the application's own ones
    surround the worker. ``mission_control`` is the path of the pages, ``auth`` their check.

    >>> from litestar import Litestar
    >>> from forge_jobs.integrations.litestar import ForgePlugin
    >>> app = Litestar(plugins=[ForgePlugin(forge, queues=["mail"], mission_control="/jobs")])
    """

    def __init__(
        self,
        forge: Forge,
        *,
        worker: bool = True,
        queues: Queues | None = None,
        mission_control: str | None = None,
        auth: "Credentials | Identify | None" = None,
        **options: Unpack[WorkerKeywords],
    ) -> None:
        if mission_control is not None and not mission_control.strip("/"):
            raise BadOption("mission_control='/' would hide the application: use a path as '/jobs'")
        self._forge = forge
        self._lifespan = lifespan(forge, worker=worker, queues=queues, **options)
        self._path = mission_control
        self._auth = auth

    def on_app_init(self, app_config: "AppConfig") -> "AppConfig":
        """Called by Litestar while the application is made."""
        config: Any = app_config
        config.lifespan = [*config.lifespan, self._lifespan]
        provide = Provide(lambda: self._forge, sync_to_thread=False)
        app_config.dependencies = {"forge": provide, **app_config.dependencies}
        app_config.signature_namespace["Forge"] = Forge
        if self._path is not None:
            # Litestar does not tell a mounted application where it is.
            panel = mission_control(self._forge, auth=self._auth, root=self._path)
            config.lifespan.append(aclosing(panel))
            config.route_handlers = [*config.route_handlers, _mounted(self._path, panel)]
        return app_config


def _mounted(path: str, panel: Any) -> Any:
    @asgi(path, is_mount=True, copy_scope=True)
    async def pages(scope: "Scope", receive: "Receive", send: "Send") -> None:
        await panel(scope, receive, send)

    return pages
