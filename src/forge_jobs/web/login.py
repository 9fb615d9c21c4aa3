"""The door: the login page, its cookie, and reading forms."""

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from forge_jobs.kit.clock import Clock

from .access.methods import AccessMethod
from .access.sessions import COOKIE, LIFE_S
from .local import local_path

if TYPE_CHECKING:
    from .layout import Frame

# Guessing a password costs this long per try and process, whatever the number of callers.
_WRONG_S: Final = 0.5
_MAX_WAITING: Final = 20


async def fields(request: Request) -> dict[str, str]:
    """A form's fields; a repeated name becomes one text with commas."""
    data = (await request.body()).decode("utf-8", "replace")
    given: dict[str, str] = {}
    for name, value in parse_qsl(data, keep_blank_values=True):
        given[name] = f"{given[name]},{value}" if name in given else value
    return given


def turned_away(request: Request, access: AccessMethod, frame: "Frame") -> Response:
    """To the login page, if there is one; else a refusal that says what to do."""
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


class Door:
    """Lets one password be tried at a time, and few wait for their turn."""

    def __init__(self, access: AccessMethod, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0

    @property
    def crowded(self) -> bool:
        """Whether so many wait that one more is sent away."""
        return self._waiting >= _MAX_WAITING

    async def enter(self, password: str) -> str | None:
        """A session cookie for the right password; a wrong one takes its time."""
        self._waiting += 1
        try:
            async with self._turn:
                cookie = await self._access.enter(password)
                if cookie is None:
                    await self._clock.sleep(_WRONG_S)
                return cookie
        finally:
            self._waiting -= 1


async def answer(request: Request, access: AccessMethod, frame: "Frame", door: Door) -> Response:
    """Show the login page, or try a password."""
    if not access.login:
        return PlainTextResponse("there is no password to log in with\n", 404)
    back = local_path(request.query_params.get("back", "/"))
    if request.method == "GET":
        return HTMLResponse(frame.login(request, back))
    given = await fields(request)
    # a wrong password does not lose the way
    back = local_path(given.get("back", back))
    if door.crowded:
        return PlainTextResponse("too many are trying passwords: wait a moment\n", 429)
    cookie = await door.enter(given.get("password", ""))
    if cookie is None:
        return HTMLResponse(frame.login(request, back, wrong=True), 401)
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}{back}", 303)
    response.set_cookie(
        COOKIE, cookie, max_age=LIFE_S, httponly=True, samesite="strict", path=root or "/",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


async def leave(request: Request, access: AccessMethod) -> Response:
    """End the session, in every process and for whoever has a copy of its cookie."""
    await access.leave(request)
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}/login", 303)
    response.delete_cookie(COOKIE, path=root or "/")
    return response
