"""The login page, its cookies, logout, and parsing of form fields."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import SECRET_ENTROPY
from forge_jobs.ops.audit import Actor, AuditTrail, Store
from forge_jobs.ops.login_attempts import LoginAttempts, device_cookie
from forge_jobs.ops.sessions import Sessions

from .access.identity import Identity, Role
from .access.login_throttle import (
    DEVICE_COOKIE,
    DEVICE_LIFETIME_S,
    FAILURE_DELAY_S,
    Attempt,
    LoginThrottle,
)
from .access.methods import AccessMethod
from .access.sessions import COOKIE, SESSION_LIFETIME_S, role_of_session
from .local_path import local_path

if TYPE_CHECKING:
    from .layout import Layout


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
        return PlainTextResponse(refusal_text(access) + "\n", 403)
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"hx-redirect": f"{root}/login"})
    back = quote(local_path(str(request.url.path).removeprefix(root)))
    return RedirectResponse(f"{root}/login?back={back}", 303)


def refusal_text(access: AccessMethod) -> str:
    """Why a request without an identity is refused, and what to do."""
    return getattr(access, "refusal", "this request is not authorized: ask the administrator")


def custom_response(request: Request, response: Response) -> Response:
    """The response of an application's own check. A redirect of an htmx request becomes one of the
    whole page: otherwise the login page would be placed inside the page."""
    location = response.headers.get("location")
    if location is None or not request.headers.get("hx-request"):
        return response
    return Response(status_code=401, headers={"hx-redirect": location})


@dataclass(frozen=True, slots=True)
class Login:
    """Logs users in and out, throttled and audited."""

    access: AccessMethod
    layout: "Layout"
    open_store: Callable[[], Awaitable[Store]]
    clock: Clock
    sessions: Sessions
    throttle: LoginThrottle

    @classmethod
    def over(
        cls,
        access: AccessMethod,
        layout: "Layout",
        open_store: Callable[[], Awaitable[Store]],
        clock: Clock,
    ) -> "Login":
        """The login of one store."""
        sessions = Sessions(open_store)
        throttle = LoginThrottle(LoginAttempts(open_store), sessions, clock)
        return cls(access, layout, open_store, clock, sessions, throttle)

    async def handle(self, request: Request) -> Response:
        """Show the login page, or verify a password and set the session cookie."""
        if not self.access.login:
            return PlainTextResponse("there is no password to log in with\n", 404)
        back = local_path(request.query_params.get("back", "/"))
        if request.method == "GET":
            return HTMLResponse(self._page(request, back))
        fields = await form_fields(request)
        # the target survives a wrong password
        back = local_path(fields.get("back", back))
        named = self._named_role(fields)
        attempt = await self.throttle.admit(request, named)
        if attempt.wait_s > 0:
            wait_s = math.ceil(attempt.wait_s)
            page = self._page(request, back, named, wait_s=wait_s)
            return HTMLResponse(page, 429, headers={"retry-after": str(wait_s)})
        token = await self._verify(attempt, fields.get("password", ""))
        if token is None:
            return HTMLResponse(self._page(request, back, named, failed=True), 401)
        return await self._logged_in(request, attempt, token, back)

    def _named_role(self, fields: dict[str, str]) -> Role | None:
        """The role that the user chose, if it can log in."""
        word = fields.get("role", "")
        return next((role for role in self.access.roles if role.word == word), None)

    def _page(
        self,
        request: Request,
        back: str,
        named: Role | None = None,
        *,
        failed: bool = False,
        wait_s: int = 0,
    ) -> str:
        variables = {
            "back": back,
            "roles": [role.word for role in self.access.roles],
            "role": None if named is None else named.word,
            "failed": failed,
            "wait_s": wait_s,
        }
        return self.layout.render_login(request, variables)

    async def handle_logout(self, request: Request) -> Response:
        """Delete the session, which invalidates its cookie in every process."""
        identity = await self.access.identify(request)
        await self.access.log_out(request)
        if isinstance(identity, Identity):
            actor = Actor(f"web:{identity.name}", identity.role.word, address_of(request))
            await self._record(actor, "log out", identity.role.word)
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}/login", 303)
        response.delete_cookie(COOKIE, path=root or "/")
        return response

    async def _verify(self, attempt: Attempt, password: str) -> str | None:
        """A session token for the right password. A wrong one is counted, audited and delayed."""
        self.throttle.started(attempt)
        try:
            async with self.throttle.lock:
                if attempt.only is None:
                    token = await self.access.log_in(password)
                else:
                    token = await self.access.log_in(password, attempt.only)
            if token is None:
                failure = await self.throttle.failed(attempt)
                actor = Actor("web:unknown", None, attempt.address)
                await self._record(actor, "failed log in", "login", **asdict(failure))
                await self.clock.sleep(FAILURE_DELAY_S)
            return token
        finally:
            self.throttle.ended(attempt)

    async def _logged_in(
        self, request: Request, attempt: Attempt, token: str, back: str
    ) -> Response:
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}{back}", 303)
        cookies = [(COOKIE, token, SESSION_LIFETIME_S)]
        role = role_of_session(token)
        word = "unknown" if role is None else role.word
        if role is not None:
            await self.throttle.succeeded(attempt, word)
            nonce = f"{SECRET_ENTROPY.bits(128):032x}"
            device = device_cookie(await self.sessions.key(), word, nonce)
            cookies.append((DEVICE_COOKIE, device, DEVICE_LIFETIME_S))
        for name, value, max_age in cookies:
            response.set_cookie(
                name, value, max_age=max_age, path=root or "/", httponly=True,
                samesite="strict", secure=request.url.scheme == "https",
            )  # fmt: skip
        await self._record(Actor(f"web:{word}", word, attempt.address), "log in", word)
        return response

    async def _record(self, actor: Actor, action: str, subject: str, **detail: float) -> None:
        trail = AuditTrail(await self.open_store(), actor, clock=self.clock)
        await trail.record(action, subject, detail)


def address_of(request: Request) -> str | None:
    """The address a request comes from. Behind a proxy it is that of the proxy, unless the server
    trusts the proxy's X-Forwarded-For."""
    return None if request.client is None else request.client.host
