"""The ASGI app: the routes of pages, forms and API, each behind authentication and a role."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from forge_jobs.core.errors import ForgeError, NotFound, StoreError
from forge_jobs.kit.entropy import SECRET_ENTROPY
from forge_jobs.ops.chart_cache import ChartCache
from forge_jobs.ops.operations import Operations
from forge_jobs.ops.sessions import Sessions

from . import error_responses, guard, login, page_files
from .access.credentials import Credentials
from .access.identity import Identify, Identity, Role
from .access.methods import AccessMethod, CustomCheck, PasswordsAndTokens, ThisMachineOnly
from .api import route as api_route
from .api.all import ROUTES
from .api.openapi import openapi_path
from .layout import Layout
from .live import LiveHub
from .pages.all import FORMS, PAGES
from .pages.page import FormSpec, PageSpec
from .request_context import NotAllowed, RequestContext

if TYPE_CHECKING:
    from forge_jobs.app import Forge

ContextHandler = Callable[[RequestContext, Request], Awaitable[Response]]
RequestHandler = Callable[[Request], Awaitable[Response]]


def mission_control(
    forge: "Forge",
    *,
    auth: Credentials | AccessMethod | Identify | None = None,
    read_only: bool = False,
    hosts: tuple[str, ...] = (),
    title: str = "Mission Control",
    root: str = "",
) -> "MissionControl":
    """Pages and API for this Forge, as an ASGI application.

    Without ``auth`` only requests from this machine are accepted, as admin. ``auth`` is
    ``Credentials``, or a callable from a request to an identity, a role, a response such as a
    redirect to a login, or None to refuse. ``read_only`` omits every route that writes. ``hosts``
    are the accepted host names; empty accepts all. ``root`` is the mount path, for frameworks that
    do not set ``root_path`` (Litestar, Django).

    >>> from starlette.applications import Starlette
    >>> app = Starlette()
    >>> app.mount("/forge", web.mission_control(forge))
    """
    match auth:
        case None:
            access: AccessMethod = ThisMachineOnly()
        case Credentials():
            access = PasswordsAndTokens(auth, Sessions(forge.aready))
        case _ if hasattr(auth, "identify"):
            access = auth  # pyright: ignore[reportAssignmentType]
        case _:
            access = CustomCheck(auth)  # pyright: ignore[reportArgumentType]
    page_files.log_missing()
    return MissionControl(forge, access, read_only=read_only, hosts=hosts, title=title, root=root)


class MissionControl:
    """One Mission Control: an ASGI application over one Forge."""

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
        self.hub = LiveHub(forge.clock, self._stamp)
        self.operations = Operations(forge.clock, SECRET_ENTROPY)
        self.chart_cache = ChartCache(forge.clock)
        self.layout = Layout(title, PAGES, read_only=read_only, login=access.login)
        self._login = login.Login.over(access, self.layout, forge.aready, forge.clock)
        self._app = guard.Guard(
            Starlette(
                routes=self._routes(),
                exception_handlers={
                    guard.TooLarge: guard.too_large,
                    guard.TooSlow: guard.too_slow,
                    ClientDisconnect: guard.client_gone,
                    500: guard.internal_error,
                },
            ),
            identified_by_token=access.identified_by_token,
            hosts=hosts,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(_scope_below(self._root, scope) if self._root else scope, receive, send)

    async def aclose(self) -> None:
        """Stop background tasks. Bulk operations stop after their current batch, and the audit
        records how far they came."""
        await self.operations.close()
        await self.chart_cache.close()

    def _routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", _liveness, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/login", self._handle_login, methods=["GET", "POST"]),
            Route("/logout", self._handle_logout, methods=["POST"]),
            Mount("/static", page_files.FILES),
            Route("/live", self._page_guard(Role.VIEWER, self._live), methods=["GET"]),
            *(self._page_route(page) for page in PAGES),
            *(self._form_route(form) for form in FORMS if not self.read_only),
            *self._api_routes(),
            Route("/api/{rest:text}", _UnknownRoute()),
            Route("/{rest:path}", self._unknown_page, methods=["GET"]),
        ]

    # ----------------------------------------------------------------- authentication and role

    async def _request_context(self, request: Request) -> RequestContext | Response | None:
        identity = await self.access.identify(request)
        if not isinstance(identity, Identity):
            return identity
        root = request.scope.get("root_path", "")
        return await self._context_for(identity, root, login.address_of(request))

    async def _context_for(
        self, identity: Identity, root: str, address: str | None
    ) -> RequestContext:
        return RequestContext(
            self.forge, await self.forge.aready(), identity, self.operations, self.chart_cache,
            self.read_only, root, address,
        )  # fmt: skip

    async def _stamp(self) -> str:
        """A text that changes with everything pages show: writes to the store, background reads
        of charts, running operations."""
        store = await self.forge.aready()
        own = f"{self.chart_cache.background_reads} {self.operations.running}"
        return f"{await store.metrics.stamp()} {own}"

    def _page_guard(self, role: Role, handler: ContextHandler) -> RequestHandler:
        async def guarded(request: Request) -> Response:
            known: RequestContext | None = None
            try:
                context = await self._request_context(request)
                if context is None:
                    return login.require_login(request, self.access)
                if isinstance(context, Response):
                    return login.custom_response(request, context)
                known = context
                if context.identity.role < role:
                    raise NotAllowed(f"this needs the role {role.word}: ask an admin")
                return await handler(context, request)
            except ForgeError as error:
                return self.layout.error_page(request, error, known)

        return guarded

    def _api_guard(self, role: Role, handler: ContextHandler) -> RequestHandler:
        async def guarded(request: Request) -> Response:
            try:
                context = await self._request_context(request)
                if context is None:
                    text = login.refusal_text(self.access)
                    return error_responses.problem_response(401, "unauthorized", text)
                if isinstance(context, Response):
                    return context
                if context.identity.role < role:
                    raise NotAllowed(f"this needs the role {role.word}: ask an admin")
                return await handler(context, request)
            except ForgeError as error:
                return error_responses.error_response(error)

        return guarded

    # ------------------------------------------------------------------- pages, forms and routes

    async def _unknown_page(self, request: Request) -> Response:
        """404 with navigation for whom is known, and nothing but 404 for others."""
        error = NotFound(f"there is no page {request.url.path}")
        try:
            context = await self._request_context(request)
        except ForgeError:
            context = None
        known = context if isinstance(context, RequestContext) else None
        return self.layout.error_page(request, error, known)

    def _page_route(self, page: PageSpec) -> Route:
        async def get(context: RequestContext, request: Request) -> Response:
            variables = await page.view(context, _parameters(request))
            return HTMLResponse(self.layout.render_page(page, context, request, variables))

        return Route(page.path, self._page_guard(page.role, get), methods=["GET"])

    def _form_route(self, form: FormSpec) -> Route:
        async def post(context: RequestContext, request: Request) -> Response:
            fields = await login.form_fields(request)
            notice = await form.act(context, {**fields, **request.path_params})
            back = fields.get("back", "/")
            return self.layout.action_response(request, notice, fields, back)

        return Route(form.path, self._page_guard(form.role, post), methods=["POST"])

    def _api_routes(self) -> list[Route]:
        by_path: dict[str, dict[str, RequestHandler]] = {}
        for route in ROUTES:
            if not (self.read_only and route.writes):
                handler = self._api_guard(route.role, _api_handler(route))
                by_path.setdefault(openapi_path(route), {})[route.method] = handler
        return [Route(path, _MethodDispatch(methods)) for path, methods in by_path.items()]

    async def _live(self, context: RequestContext, request: Request) -> Response:
        page, params = self.layout.find_page(request.query_params.get("view", "/"))
        if context.identity.role < page.role:
            raise NotAllowed(f"this needs the role {page.role.word}: ask an admin")
        if not page.live:
            raise NotFound(f"{page.path} does not change by itself: open it as a page")

        async def render() -> str:
            current = await self._context_for(context.identity, context.root, context.address)
            variables = await page.view(current, params)
            return self.layout.render_main(page, current, request, variables)

        async def is_authorized() -> bool:
            return await self.access.identify(request) == context.identity

        key = f"{context.identity.role.word} {request.query_params.get('view', '/')}"
        return StreamingResponse(
            self.hub.stream(key, render, is_authorized),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    # ------------------------------------------------------------------------- health and login

    async def _ready(self, request: Request) -> Response:
        try:
            store = await self.forge.aready()
            await store.queues.all()
        except StoreError:
            return PlainTextResponse("the store cannot be reached\n", 503)
        return PlainTextResponse("ok\n")

    async def _handle_login(self, request: Request) -> Response:
        try:
            return await self._login.handle(request)
        except ForgeError as error:
            return self.layout.error_page(request, error)

    async def _handle_logout(self, request: Request) -> Response:
        try:
            return await self._login.handle_logout(request)
        except ForgeError as error:
            # the session may still be valid: keep the cookie, so that logout can be repeated
            return self.layout.error_page(request, error)


def _scope_below(root: str, scope: Scope) -> Scope:
    """The scope as a mount would pass it: the full path, and the mount path as ``root_path``."""
    if scope["type"] != "http":
        return scope
    path = str(scope["path"])
    rest = path.removeprefix(root) if f"{path}/".startswith(f"{root}/") else path
    rest = rest if len(rest) < 2 else rest.rstrip("/")
    return {**scope, "root_path": root, "path": root + (rest or "/")}


async def _liveness(request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _api_handler(route: api_route.Route) -> ContextHandler:
    async def call(context: RequestContext, request: Request) -> Response:
        return await api_route.handle(route, context, request)

    return call


class _MethodDispatch:
    """Dispatches one path by method; another method gets 405 with ``Allow``."""

    def __init__(self, methods: dict[str, RequestHandler]) -> None:
        self._methods = methods
        if "GET" in methods:
            self._methods["HEAD"] = methods["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        handler = self._methods.get(request.method)
        if handler is not None:
            await (await handler(request))(scope, receive, send)
            return
        allowed = ", ".join(sorted(self._methods))
        text = f"{request.method} is not for this path: use {allowed}"
        response = error_responses.problem_response(
            405, "method_not_allowed", text, {"allow": allowed}
        )
        await response(scope, receive, send)


class _AnyText(Convertor[str]):
    """The rest of a path, with slashes and line ends, which ``path`` does not match."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _AnyText())


class _UnknownRoute:
    """Answers every other path below /api with 404 as JSON."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = "there is no such route: see /api/openapi.json"
        await error_responses.problem_response(404, "not_found", text)(scope, receive, send)


def _parameters(request: Request) -> dict[str, str]:
    return {**dict(request.query_params), **request.path_params}
