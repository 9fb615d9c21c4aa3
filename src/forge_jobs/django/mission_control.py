"""Mission Control among the pages of a Django project: ``path("forge/", mission_control_urls())``.

Users of staff may look, those with the permission ``forge_jobs.operate_job`` may change jobs, and
superusers may delete. Under ASGI it is the whole of Mission Control; under WSGI, which has no loop
that outlives a request, a page says how to run ``forge web`` beside the project.
"""

from importlib import import_module
from typing import Any, Final

from .asgi_bridge import respond

_http: Any = import_module("django.http")
_urls: Any = import_module("django.urls")
_redirect: Any = import_module("django.contrib.auth.views").redirect_to_login
_PermissionDenied: Any = import_module("django.core.exceptions").PermissionDenied
_IDENTITY: Final = "forge_jobs.identity"
OPERATE: Final = "forge_jobs.operate_job"
_ON_WSGI: Final = """<!doctype html>
<html lang="en"><head><title>Mission Control</title></head><body>
<h1>Mission Control needs ASGI</h1>
<p>This project runs under WSGI, where a page cannot follow what happens. Either serve the project
by ASGI (uvicorn, Daphne, Hypercorn), or run Mission Control beside it:</p>
<pre>FORGE_WEB_PASSWORD="$(forge web password)" python manage.py forge web --port 8787</pre>
</body></html>
"""


def mission_control_urls(
    backend: str | None = None, *, read_only: bool = False, title: str = "Mission Control"
) -> tuple[list[Any], str, str]:
    """What ``path`` includes: Mission Control for the Forge of a task backend."""
    page = _MissionControlView(backend, read_only=read_only, title=title)

    async def view(request: Any, rest: str) -> Any:
        return await page.respond(request, rest)

    # Mission Control compares origins itself, and its forms have no token of Django.
    view.csrf_exempt = True  # pyright: ignore[reportFunctionMemberAccess]
    return [_urls.re_path(r"^(?P<rest>.*)$", view, name="page")], "forge", "forge"


class _MissionControlView:
    """One mounted Mission Control, made by the first request."""

    def __init__(self, backend: str | None, **options: Any) -> None:
        self._backend = backend
        self._options = options
        self._app: Any = None

    async def respond(self, request: Any, rest: str) -> Any:
        """The response of Django to a request of Django."""
        if not hasattr(request, "scope"):
            return _http.HttpResponse(_ON_WSGI, status=501)
        # Names that ALLOWED_HOSTS does not have are refused, whatever middleware there is.
        request.get_host()
        user = await request.auser()
        if not user.is_authenticated:
            return _redirect(request.get_full_path(), _login_url())
        if not (user.is_active and user.is_staff):
            raise _PermissionDenied("Mission Control is for users of staff")
        root = request.path[: len(request.path) - len(rest)].rstrip("/")
        query: str = request.META.get("QUERY_STRING", "")
        scope = {**request.scope, "path": request.path, "root_path": root}
        scope["query_string"] = query.encode("latin-1")
        scope[_IDENTITY] = await self._identity(user)
        return await respond(self._application(), scope, request.body)

    async def _identity(self, user: Any) -> Any:
        from forge_jobs.web import Identity, Role

        role = Role.OPERATOR if await user.ahas_perm(OPERATE) else Role.VIEWER
        return Identity(user.get_username(), Role.ADMIN if user.is_superuser else role)

    def _application(self) -> Any:
        if self._app is None:
            from forge_jobs.web import mission_control

            from .application import forge_of

            self._app = mission_control(
                forge_of(self._backend), auth=lambda request: request.scope[_IDENTITY],
                **self._options,
            )  # fmt: skip
        return self._app


def _login_url() -> str:
    settings: Any = import_module("django.conf").settings
    try:
        return _urls.reverse("admin:login")
    except _urls.NoReverseMatch:
        return settings.LOGIN_URL
