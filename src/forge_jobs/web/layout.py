"""The frame around every page: navigation, notices, trouble; and what all templates may use."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import compile_path

from forge_jobs.core.errors import ForgeError, NotFound
from forge_jobs.kit import redact

from . import rendering
from .access.identity import Role
from .error_responses import status_of
from .local import local_path
from .pages.page import Given, Notice, Page, Shown
from .request_context import RequestContext

_NOTICE: Final = "forge_notice"
_NOTICE_S: Final = 20
_VERSION: Final = version("forge-jobs")


class Frame:
    """Renders pages. ``title`` names this Mission Control in every window."""

    def __init__(self, title: str, pages: Sequence[Page], *, read_only: bool, login: bool) -> None:
        self._title = title
        self._pages = pages
        self._read_only = read_only
        self._login = login

    def whole(self, page: Page, desk: RequestContext, request: Request, shown: Shown) -> str:
        """The page with its frame, for a first visit."""
        return rendering.whole(page.template, self._names(page, desk, request, shown))

    def main(self, page: Page, desk: RequestContext, request: Request, shown: Shown) -> str:
        """The part of the page that lives."""
        return rendering.main_part(page.template, self._names(page, desk, request, shown))

    def login(self, request: Request, back: str, *, wrong: bool = False) -> str:
        """The page that asks for the password."""
        return rendering.whole(
            "login.html",
            {**self._common(request), "back": back, "wrong": wrong},
        )

    def trouble(self, request: Request, error: ForgeError) -> Response:
        """A page, or for a live part a notice, that says what is wrong."""
        status, _ = status_of(error)
        text = redact.prose(str(error))
        if request.headers.get("hx-request"):
            return _told(Response(status_code=204), Notice(text, bad=True))
        shown = {**self._common(request), "status": status, "text": text}
        return HTMLResponse(rendering.whole("trouble.html", shown), status)

    def acted(self, request: Request, notice: Notice, back: str) -> Response:
        """Back to the page the action came from, with a sentence about what it did."""
        if request.headers.get("hx-request"):
            return _told(Response(status_code=204), notice)
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}{local_path(back)}", 303)
        body = msgspec.json.encode(notice).hex()
        response.set_cookie(
            _NOTICE, body, max_age=_NOTICE_S, httponly=True, samesite="strict", path=root or "/"
        )
        return response

    def named(self, address: str) -> tuple[Page, dict[str, str]]:
        """The page behind a path with its query, and what was given to it."""
        parts = urlsplit(local_path(address))
        for page in self._pages:
            matched = compile_path(page.path)[0].match(parts.path)
            if matched is not None:
                return page, {**dict(parse_qsl(parts.query)), **matched.groupdict()}
        raise NotFound(f"there is no page {parts.path}")

    def _names(
        self, page: Page, desk: RequestContext, request: Request, shown: Shown
    ) -> dict[str, Any]:
        common = self._common(request)
        return {
            **common,
            "page": page,
            "desk": desk,
            "operator": desk.may(Role.OPERATOR),
            "admin": desk.may(Role.ADMIN),
            "notice": _pending_notice(request),
            "here": local_path(request.query_params.get("view") or _address(request)),
            **shown,
        }

    def _common(self, request: Request) -> dict[str, Any]:
        root = request.scope.get("root_path", "")

        def url(path: str, given: Given | None = None, /, **changes: object) -> str:
            return f"{root}{with_query(local_path(path), given or {}, changes)}"

        return {
            "url": url,
            "pages": [page for page in self._pages if page.nav],
            "site": self._title,
            "version": _VERSION,
            "read_only": self._read_only,
            "login": self._login,
        }


def with_query(path: str, given: Mapping[str, str], changes: Mapping[str, object]) -> str:
    """A path with a query; None and empty text leave a name out."""
    query = {**given, **changes}
    kept = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def _address(request: Request) -> str:
    root = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(root) or "/"
    return f"{path}?{request.url.query}" if request.url.query else path


def _told(response: Response, notice: Notice) -> Response:
    # a header holds ASCII only
    response.headers["hx-trigger"] = json.dumps({"forge:notice": msgspec.to_builtins(notice)})
    return response


def _pending_notice(request: Request) -> Notice | None:
    kept = request.cookies.get(_NOTICE)
    if kept is None:
        return None
    try:
        return msgspec.json.decode(bytes.fromhex(kept), type=Notice)
    except (ValueError, msgspec.MsgspecError):
        return None
