"""The ASGI app: every page, form and route behind the same checks."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from forge_jobs.core.errors import ForgeError, NotFound, StoreError
from forge_jobs.kit.entropy import SECRET_ENTROPY
from forge_jobs.ops.chart_cache import ChartCache
from forge_jobs.ops.operations import Operations
from forge_jobs.ops.sessions import Sessions

from . import error_responses, login, page_files
from .access.credentials import Credentials
from .access.identity import Identify, Identity, Role
from .access.methods import AccessMethod, OwnCheck, PasswordsAndTokens, ThisMachineOnly
from .api import route as api_route
from .api.all import ROUTES
from .api.openapi import openapi_path
from .guard import Guard, TooLarge, broken, too_large
from .layout import Frame
from .live import Hub
from .pages.all import FORMS, PAGES
from .pages.page import Form, Page
from .request_context import NotAllowed, RequestContext

if TYPE_CHECKING:
    from forge_jobs.app import Forge

Answer = Callable[[RequestContext, Request], Awaitable[Response]]
Handle = Callable[[Request], Awaitable[Response]]


def mission_control(
    forge: "Forge",
    *,
    auth: Credentials | AccessMethod | Identify | None = None,
    read_only: bool = False,
    hosts: tuple[str, ...] = (),
    title: str = "Mission Control",
    root: str = "",
) -> "MissionControl":
    """Pages and API for this Forge.

    Without ``auth`` only this machine gets in, as admin. ``auth`` is ``Credentials``, or a callable
    from request to an identity or a role. ``read_only`` leaves out every route that changes
    something. ``hosts`` are the names it may be reached by; all, when empty. ``root`` is the path
    it is mounted at, for frameworks whose mounts do not tell (Litestar, Django).
    """
    match auth:
        case None:
            access: AccessMethod = ThisMachineOnly()
        case Credentials():
            access = PasswordsAndTokens(auth, Sessions(forge.aready))
        case _ if hasattr(auth, "identify"):
            access = auth  # pyright: ignore[reportAssignmentType]
        case _:
            access = OwnCheck(auth)  # pyright: ignore[reportArgumentType]
    page_files.warn()
    return MissionControl(forge, access, read_only=read_only, hosts=hosts, title=title, root=root)


class MissionControl:
    """One Mission Control; an ASGI application."""

    def __init__(
        self,
        forge: "Forge",
        access: AccessMethod,
        *,
        read_only: bool,
        hosts: tuple[str, ...],
        title: str,
        root: str = "",
    ) -> None:
        self.forge = forge
        self.access = access
        self.read_only = read_only
        self._root = root.rstrip("/")
        self.hub = Hub(forge.clock, self._stamp)
        self.operations = Operations(forge.clock, SECRET_ENTROPY)
        self.chronicle = ChartCache(forge.clock)
        self.frame = Frame(title, PAGES, read_only=read_only, login=access.login)
        self._door = login.Door(access, forge.clock)
        self._app = Guard(
            Starlette(routes=self._routes(), exception_handlers={TooLarge: too_large, 500: broken}),
            by_token=access.by_token,
            hosts=hosts,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(_below(self._root, scope) if self._root else scope, receive, send)

    async def aclose(self) -> None:
        """End what goes on in the background: bulk work stops after its present step, and the
        audit says how far it came."""
        await self.operations.close()
        await self.chronicle.close()

    def _routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", _alive, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Mount("/static", StaticFiles(directory=page_files.STATIC)),
            Route("/live", self._page_guard(Role.VIEWER, self._live), methods=["GET"]),
            *(self._page_route(page) for page in PAGES),
            *(self._form_route(form) for form in FORMS if not self.read_only),
            *self._api_routes(),
            Route("/api/{rest:path}", _NoSuchRoute()),
        ]

    # ------------------------------------------------------------------------------ who is there

    async def _desk(self, request: Request) -> RequestContext | None:
        identity = await self.access.identify(request)
        if identity is None:
            return None
        return await self._desk_of(identity, request.scope.get("root_path", ""))

    async def _desk_of(self, identity: Identity, root: str) -> RequestContext:
        store = await self.forge.aready()
        return RequestContext(
            self.forge, store, identity, self.operations, self.chronicle, self.read_only, root
        )

    async def _stamp(self) -> str:
        """Changes with everything that pages show: the store, and what this process does itself."""
        store = await self.forge.aready()
        return f"{await store.metrics.stamp()} {self.chronicle.caught_up} {self.operations.running}"

    def _page_guard(self, role: Role, answer: Answer) -> Handle:
        async def checked(request: Request) -> Response:
            try:
                desk = await self._desk(request)
                if desk is None:
                    return login.turned_away(request, self.access, self.frame)
                if desk.identity.role < role:
                    raise NotAllowed(f"this needs the role {role.word}: ask an admin")
                return await answer(desk, request)
            except ForgeError as error:
                return self.frame.trouble(request, error)

        return checked

    def _api_guard(self, role: Role, answer: Answer) -> Handle:
        async def checked(request: Request) -> Response:
            try:
                desk = await self._desk(request)
                if desk is None:
                    text = "who are you? send a bearer token, or log in"
                    return error_responses.plain(401, "unauthorized", text)
                if desk.identity.role < role:
                    raise NotAllowed(f"this needs the role {role.word}: ask an admin")
                return await answer(desk, request)
            except ForgeError as error:
                return error_responses.as_json(error)

        return checked

    # ------------------------------------------------------------------------------ what is there

    def _page_route(self, page: Page) -> Route:
        async def show(desk: RequestContext, request: Request) -> Response:
            shown = await page.view(desk, _given(request))
            return HTMLResponse(self.frame.whole(page, desk, request, shown))

        return Route(page.path, self._page_guard(page.role, show), methods=["GET"])

    def _form_route(self, form: Form) -> Route:
        async def act(desk: RequestContext, request: Request) -> Response:
            fields = await login.fields(request)
            notice = await form.act(desk, {**fields, **request.path_params})
            return self.frame.acted(request, notice, fields.get("back", "/"))

        return Route(form.path, self._page_guard(form.role, act), methods=["POST"])

    def _api_routes(self) -> list[Route]:
        by_path: dict[str, dict[str, Handle]] = {}
        for one in ROUTES:
            if not (self.read_only and one.writes):
                handle = self._api_guard(one.role, _calling(one))
                by_path.setdefault(openapi_path(one), {})[one.method] = handle
        return [Route(path, _ByMethod(methods)) for path, methods in by_path.items()]

    async def _live(self, desk: RequestContext, request: Request) -> Response:
        page, given = self.frame.named(request.query_params.get("view", "/"))
        if desk.identity.role < page.role:
            raise NotAllowed(f"this needs the role {page.role.word}: ask an admin")
        if not page.live:
            raise NotFound(f"{page.path} does not change by itself: open it as a page")

        async def render() -> str:
            fresh = await self._desk_of(desk.identity, desk.root)
            return self.frame.main(page, fresh, request, await page.view(fresh, given))

        async def still() -> bool:
            return await self.access.identify(request) == desk.identity

        key = f"{desk.identity.role.word} {request.query_params.get('view', '/')}"
        return StreamingResponse(
            self.hub.stream(key, render, still),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    # ---------------------------------------------------------------------------- coming and going

    async def _ready(self, request: Request) -> Response:
        try:
            store = await self.forge.aready()
            await store.queues.all()
        except StoreError:
            return PlainTextResponse("the store cannot be reached\n", 503)
        return PlainTextResponse("ok\n")

    async def _login(self, request: Request) -> Response:
        try:
            return await login.answer(request, self.access, self.frame, self._door)
        except ForgeError as error:
            return self.frame.trouble(request, error)

    async def _logout(self, request: Request) -> Response:
        try:
            return await login.leave(request, self.access)
        except ForgeError as error:
            # the session may still hold: the cookie stays, so that it can be tried again
            return self.frame.trouble(request, error)


def _below(root: str, scope: Scope) -> Scope:
    """The scope as a mount would give it: the whole path, and where the mount is."""
    if scope["type"] != "http":
        return scope
    path = str(scope["path"])
    rest = path.removeprefix(root) if f"{path}/".startswith(f"{root}/") else path
    rest = rest if len(rest) < 2 else rest.rstrip("/")
    return {**scope, "root_path": root, "path": root + (rest or "/")}


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _calling(one: api_route.Route) -> Answer:
    async def call(desk: RequestContext, request: Request) -> Response:
        return await api_route.run(one, desk, request)

    return call


class _ByMethod:
    """All methods of one path; another one is told which there are."""

    def __init__(self, methods: dict[str, Handle]) -> None:
        self._methods = methods
        if "GET" in methods:
            self._methods["HEAD"] = methods["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        handle = self._methods.get(request.method)
        if handle is not None:
            await (await handle(request))(scope, receive, send)
            return
        allowed = ", ".join(sorted(self._methods))
        text = f"{request.method} is not for this path: use {allowed}"
        answer = error_responses.plain(405, "method_not_allowed", text, {"allow": allowed})
        await answer(scope, receive, send)


class _NoSuchRoute:
    """The rest of /api, whatever the method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = "there is no such route: see /api/openapi.json"
        await error_responses.plain(404, "not_found", text)(scope, receive, send)


def _given(request: Request) -> dict[str, str]:
    return {**dict(request.query_params), **request.path_params}
