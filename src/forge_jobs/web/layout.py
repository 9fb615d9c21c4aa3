"""Renders pages inside the common layout: navigation, notices, error pages, shared variables."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import compile_path

from forge_jobs import config
from forge_jobs.core.errors import ForgeError, NotFound
from forge_jobs.core.instant import to_datetime
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK

from . import page_files, rendering, static_files
from .access.identity import Role
from .curl import curl_command
from .error_responses import status_of
from .local_path import local_path
from .pages.page import Notice, PageSpec, Params, TemplateVars
from .request_context import RequestContext
from .trace_link import trace_link

_NOTICE_COOKIE: Final = "forge_notice"
_NOTICE_S: Final = 20
_VERSION: Final = version("forge-jobs")


class Layout:
    """Renders pages with the variables that every template uses; ``title`` is the site's name."""

    def __init__(
        self, title: str, pages: Sequence[PageSpec], *, read_only: bool, login: bool
    ) -> None:
        self._title = title
        self._pages = pages
        self._read_only = read_only
        self._login = login
        self._trace_url = config.trace_url()

    def render_page(
        self, page: PageSpec, context: RequestContext, request: Request, variables: TemplateVars
    ) -> str:
        """The complete page, with navigation and scripts."""
        return rendering.render_page(
            page.template, self._page_variables(page, context, request, variables)
        )

    def render_main(
        self, page: PageSpec, context: RequestContext, request: Request, variables: TemplateVars
    ) -> str:
        """The main block alone, for live updates."""
        return rendering.render_main(
            page.template, self._page_variables(page, context, request, variables)
        )

    def render_login(self, request: Request, variables: Mapping[str, Any]) -> str:
        """The login page."""
        return rendering.render_page("login.html", {**self._common_variables(request), **variables})

    def error_page(
        self, request: Request, error: ForgeError, context: RequestContext | None = None
    ) -> Response:
        """An error page, with navigation for whom is known; for an htmx request, a notice
        instead."""
        status, _ = status_of(error)
        text = redact.prose(str(error))
        if request.headers.get("hx-request"):
            return _with_notice(Response(status_code=204), Notice(text, bad=True))
        variables = {
            **self._common_variables(request),
            "status": status,
            "text": text,
            "context": context,
            "page": None,
        }
        return HTMLResponse(rendering.render_page("error.html", variables), status)

    def action_response(
        self, request: Request, notice: Notice, fields: Params, back: str
    ) -> Response:
        """Redirect to the page of the form with a notice; for an htmx request, the notice alone."""
        if not notice.curl:
            notice = replace(notice, curl=curl_command(request.url.path, fields))
        if request.headers.get("hx-request"):
            return _with_notice(Response(status_code=204), notice)
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}{local_path(back)}", 303)
        body = msgspec.json.encode(notice).hex()
        response.set_cookie(
            _NOTICE_COOKIE,
            body,
            max_age=_NOTICE_S,
            httponly=True,
            samesite="strict",
            path=root or "/",
        )
        return response

    def find_page(self, address: str) -> tuple[PageSpec, dict[str, str]]:
        """The page of a path with its query, and its parameters; NotFound for an unknown path."""
        parts = urlsplit(local_path(address))
        for page in self._pages:
            match = compile_path(page.path)[0].match(parts.path)
            if match is not None:
                return page, {**dict(parse_qsl(parts.query)), **match.groupdict()}
        raise NotFound(f"there is no page {parts.path}")

    def _page_variables(
        self, page: PageSpec, context: RequestContext, request: Request, variables: TemplateVars
    ) -> dict[str, Any]:
        return {
            **self._common_variables(request),
            "page": page,
            "context": context,
            "operator": context.may(Role.OPERATOR),
            "admin": context.may(Role.ADMIN),
            "notice": _pending_notice(request),
            "here": local_path(request.query_params.get("view") or _path_and_query(request)),
            **variables,
        }

    def _common_variables(self, request: Request) -> dict[str, Any]:
        root = request.scope.get("root_path", "")

        def url(path: str, params: Params | None = None, /, **changes: object) -> str:
            if path.startswith(static_files.PREFIX):
                return root + page_files.FILES.address(path)
            return f"{root}{with_query(local_path(path), params or {}, changes)}"

        return {
            "url": url,
            "pages": [page for page in self._pages if page.nav],
            "site": self._title,
            "version": _VERSION,
            "read_only": self._read_only,
            "server_offset": _server_offset(),
            "login": self._login,
            "trace_link": partial(trace_link, self._trace_url),
        }


def _server_offset() -> int:
    """Minutes that this machine's time is ahead of UTC, now: pages can show its times."""
    offset = to_datetime(SYSTEM_CLOCK.now()).astimezone().utcoffset()
    return 0 if offset is None else round(offset.total_seconds() / 60)


def with_query(path: str, params: Mapping[str, str], changes: Mapping[str, object]) -> str:
    """A path with a query string; None and empty values are omitted."""
    query = {**params, **changes}
    value = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(value)}" if value else path


def _path_and_query(request: Request) -> str:
    root = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(root) or "/"
    return f"{path}?{request.url.query}" if request.url.query else path


def _with_notice(response: Response, notice: Notice) -> Response:
    # a header may contain ASCII only, which json.dumps escapes to
    response.headers["hx-trigger"] = json.dumps({"forge:notice": msgspec.to_builtins(notice)})
    return response


def _pending_notice(request: Request) -> Notice | None:
    value = request.cookies.get(_NOTICE_COOKIE)
    if value is None:
        return None
    try:
        return msgspec.json.decode(bytes.fromhex(value), type=Notice)
    except (ValueError, msgspec.MsgspecError):
        return None
