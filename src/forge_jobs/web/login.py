"""The door: the login page, its cookie, and reading forms."""

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from forge_jobs.kit.clock import Clock

from .access.credentials import Access
from .access.sessions import COOKIE, LIFE_S

if TYPE_CHECKING:
    from .frame import Frame

# Guessing a password costs this long per try and process, whatever the number of callers.
_WRONG_S: Final = 0.5


async def fields(request: Request) -> dict[str, str]:
    """A form's fields; a repeated name becomes one text with commas."""
    data = (await request.body()).decode("utf-8", "replace")
    given: dict[str, str] = {}
    for name, value in parse_qsl(data, keep_blank_values=True):
        given[name] = f"{given[name]},{value}" if name in given else value
    return given


def turned_away(request: Request, access: Access, frame: "Frame") -> Response:
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


async def answer(request: Request, access: Access, frame: "Frame", clock: Clock) -> Response:
    """Show the login page, or try a password."""
    if not access.login:
        return PlainTextResponse("there is no password to log in with\n", 404)
    back = local_path(request.query_params.get("back", "/"))
    if request.method == "GET":
        return HTMLResponse(frame.login(request, back))
    given = await fields(request)
    cookie = access.enter(given.get("password", ""), clock.now())
    if cookie is None:
        await clock.sleep(_WRONG_S)
        return HTMLResponse(frame.login(request, back, wrong=True), 401)
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}{local_path(given.get('back', back))}", 303)
    response.set_cookie(
        COOKIE, cookie, max_age=LIFE_S, httponly=True, samesite="strict", path=root or "/",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


def leave(request: Request) -> Response:
    """Forget the session."""
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}/login", 303)
    response.delete_cookie(COOKIE, path=root or "/")
    return response


def local_path(text: str) -> str:
    """A path of this site; anything that could lead elsewhere becomes the first page."""
    if not text.startswith("/") or text.startswith(("//", "/\\")) or not text.isprintable():
        return "/"
    return text
