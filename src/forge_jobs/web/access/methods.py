"""Access methods: this machine only, passwords and tokens, or a callable of the application."""

import asyncio
import hmac
import inspect
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from forge_jobs.ops.sessions import Session, Sessions

from .credentials import Credentials
from .hashes import derive_key
from .identity import Identify, Identity, Role, parse_role
from .sessions import bearer_token, session_tokens

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost", "testclient"})


class AccessMethod(Protocol):
    """Identifies who a request comes from."""

    @property
    def login(self) -> bool:
        """Whether there is a login page."""
        ...

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that can log in, the highest first."""
        ...

    async def identify(self, request: Request) -> Identity | Response | None:
        """The identity; a response to send instead of the page, such as a redirect to a login; or
        None. StoreError if the session cannot be read."""
        ...

    def identified_by_token(self, headers: Headers) -> bool:
        """Whether a bearer token alone identifies the request. Browsers never attach one by
        themselves, so such a request cannot be forged by another site; cookies and Basic
        credentials they do attach."""
        ...

    async def log_in(self, password: str, only: Role | None = None) -> str | None:
        """A session token for the right password, else None; with ``only``, of that role alone."""
        ...

    async def log_out(self, request: Request) -> None:
        """Delete the session of a request; its cookie is no longer valid."""
        ...


class _WithoutLogin:
    """Base of access methods without a login page."""

    login = False
    roles: tuple[Role, ...] = ()

    async def log_in(self, password: str, only: Role | None = None) -> str | None:
        return None

    async def log_out(self, request: Request) -> None:
        return None


class ThisMachineOnly(_WithoutLogin):
    """Without credentials: requests from this machine are admin, others are refused."""

    refusal = (
        "Mission Control answers only this machine while it has no credentials: "
        "set FORGE_WEB_PASSWORD or FORGE_WEB_TOKENS, or pass auth="
    )

    async def identify(self, request: Request) -> Identity | None:
        host = request.client.host if request.client is not None else ""
        if host not in LOOPBACK or not _has_local_host(request):
            return None
        return Identity("local", Role.ADMIN)

    def identified_by_token(self, headers: Headers) -> bool:
        return False


class CustomCheck(_WithoutLogin):
    """A callable of the application that mounts Mission Control."""

    refusal = (
        "the application's own check (auth=) refused this request: log in to the application, or "
        "ask its administrator for a role"
    )

    def __init__(self, check: Identify) -> None:
        self._check = check

    async def identify(self, request: Request) -> Identity | Response | None:
        found = self._check(request)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, str):
            return Identity("someone", parse_role(found, source="the auth= callable"))
        return found

    def identified_by_token(self, headers: Headers) -> bool:
        """The callable may use a cookie, so a request with a cookie does not count."""
        return bool(bearer_token(headers)) and "cookie" not in headers


class PasswordsAndTokens:
    """Passwords with sessions in the store, and bearer tokens.

    A session is valid as long as its role has the password it was created with.
    """

    refusal = "log in, or send a bearer token: `forge web token` creates one"

    def __init__(self, credentials: Credentials, sessions: Sessions) -> None:
        self._credentials = credentials
        self._sessions = sessions
        self._credential_marks: dict[Role, tuple[bytes, bytes]] = {}
        self._mark_lock = asyncio.Lock()

    @property
    def login(self) -> bool:
        return self._credentials.login

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(
            role
            for role in sorted(Role, reverse=True)
            if self._credentials.password_of(role) is not None
        )

    async def identify(self, request: Request) -> Identity | None:
        bearer = bearer_token(request.headers)
        if bearer is not None:
            return self._credentials.bearer_of(bearer)
        identities = [
            identity
            for role, token in session_tokens(request.headers)
            if (identity := await self._identity_of_session(role, token)) is not None
        ]
        # two valid sessions in one request are ambiguous
        return identities[0] if len(identities) == 1 else None

    def identified_by_token(self, headers: Headers) -> bool:
        return self._credentials.bearer_of(bearer_token(headers) or "") is not None

    async def log_in(self, password: str, only: Role | None = None) -> str | None:
        # scrypt is expensive: not on the event loop
        role = await asyncio.to_thread(self._credentials.role_of, password, only)
        if role is None:
            return None
        await self._sessions.key(reread=True)
        return await self._sessions.begin(
            role.word, Session(role.word, await self._credential_mark(role))
        )

    async def log_out(self, request: Request) -> None:
        for role, token in session_tokens(request.headers):
            await self._sessions.end(role.word, token)

    async def _identity_of_session(self, role: Role, token: str) -> Identity | None:
        if self._credentials.password_of(role) is None:
            return None
        session = await self._sessions.find(role.word, token)
        if session is None or not hmac.compare_digest(
            session.mark, await self._credential_mark(role)
        ):
            return None
        return Identity(session.name, role)

    async def _credential_mark(self, role: Role) -> bytes:
        """A scrypt key of the role's password, stored in its sessions to detect a changed password.
        Computed once per key, because it is expensive."""
        key = await self._sessions.key()
        async with self._mark_lock:
            cached = self._credential_marks.get(role)
            if cached is None or cached[0] != key:
                secret = f"{role.word}={self._credentials.password_of(role)}"
                cached = (key, await asyncio.to_thread(derive_key, secret, key))
                self._credential_marks[role] = cached
            return cached[1]


def _has_local_host(request: Request) -> bool:
    """Whether the Host header is a loopback name: another one means DNS rebinding."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.strip("[]") in LOOPBACK
