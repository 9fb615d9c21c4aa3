"""The login page, its cookie, logout, and parsing of form fields."""

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from forge_jobs.kit.clock import Clock

from .access.methods import AccessMethod
from .access.sessions import COOKIE, SESSION_LIFETIME_S
from .local_path import local_path

if TYPE_CHECKING:
    from .layout import Layout

# Each wrong password delays all logins of this process by this, however many clients guess.
_FAILURE_DELAY_S: Final = 0.5
_MAX_WAITING: Final = 20


async def form_fields(request: Request) -> dict[str, str]:
    """Parse a form; values of a repeated name are joined with commas."""
    data = (await request.body()).decode("utf-8", "replace")
    fields: dict[str, str] = {}
    for name, value in parse_qsl(data, keep_blank_values=True):
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    return fields


def require_login(request: Request, access: AccessMethod) -> Response:
    """Redirect to the login page if there is one; else 403 with a remedy."""
    root = request.scope.get("root_path", "")
    if not access.login:
        text = (
            "Mission Control answers only this machine while it has no credentials: "
            "set FORGE_WEB_PASSWORD or FORGE_WEB_TOKENS, or pass auth=\n"
        )
        return PlainTextResponse(text, 403)
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"hx-redirect": f"{root}/login"})
    back = quote(local_path(str(request.url.path).removeprefix(root)))
    return RedirectResponse(f"{root}/login?back={back}", 303)


class LoginThrottle:
    """Verifies one password at a time, with a bounded number of waiting attempts."""

    def __init__(self, access: AccessMethod, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._lock = asyncio.Lock()
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        """Whether the next attempt must be refused."""
        return self._waiting >= _MAX_WAITING

    async def log_in(self, password: str) -> str | None:
        """A session token for the right password; a wrong one is delayed."""
        self._waiting += 1
        try:
            async with self._lock:
                cookie = await self._access.log_in(password)
                if cookie is None:
                    await self._clock.sleep(_FAILURE_DELAY_S)
                return cookie
        finally:
            self._waiting -= 1


async def handle_login(
    request: Request, access: AccessMethod, layout: "Layout", throttle: LoginThrottle
) -> Response:
    """Show the login page, or verify a password and set the session cookie."""
    if not access.login:
        return PlainTextResponse("there is no password to log in with\n", 404)
    back = local_path(request.query_params.get("back", "/"))
    if request.method == "GET":
        return HTMLResponse(layout.render_login(request, back))
    fields = await form_fields(request)
    # the target survives a wrong password
    back = local_path(fields.get("back", back))
    if throttle.is_full:
        return PlainTextResponse("too many are trying passwords: wait a moment\n", 429)
    cookie = await throttle.log_in(fields.get("password", ""))
    if cookie is None:
        return HTMLResponse(layout.render_login(request, back, failed=True), 401)
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}{back}", 303)
    response.set_cookie(
        COOKIE, cookie, max_age=SESSION_LIFETIME_S, path=root or "/", httponly=True,
        samesite="strict", secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


async def handle_logout(request: Request, access: AccessMethod) -> Response:
    """Delete the session, which invalidates its cookie in every process."""
    await access.log_out(request)
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}/login", 303)
    response.delete_cookie(COOKIE, path=root or "/")
    return response
