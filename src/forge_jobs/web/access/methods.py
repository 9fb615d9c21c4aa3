"""The ways in: nobody but this machine, passwords and tokens, or a user's own check."""

import asyncio
import hmac
import inspect
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.requests import Request

from forge_jobs.ops.sessions import Session, Sessions

from .credentials import Credentials
from .hashes import stretch
from .identity import Identify, Identity, Role, role_named
from .sessions import bearer_token, sessions_given

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost", "testclient"})


class AccessMethod(Protocol):
    """Decides who a request comes from."""

    @property
    def login(self) -> bool:
        """Whether there is a password to log in with."""
        ...

    async def identify(self, request: Request) -> Identity | None:
        """Who this is; None when nobody known. StoreError where only the store could tell."""
        ...

    def by_token(self, headers: Headers) -> bool:
        """Whether a bearer token alone says who this is. No browser sends one by itself, so that
        such a request is no other site's; Basic and cookies are sent by browsers unasked."""
        ...

    async def enter(self, password: str) -> str | None:
        """A session cookie for the right password."""
        ...

    async def leave(self, request: Request) -> None:
        """End the session of a request; later ones with the same cookie come from nobody."""
        ...


class _NoLogin:
    """A way in without a password."""

    login = False

    async def enter(self, password: str) -> str | None:
        return None

    async def leave(self, request: Request) -> None:
        return None


class ThisMachineOnly(_NoLogin):
    """No credentials: whoever sits at this machine is admin, everybody else is nobody."""

    async def identify(self, request: Request) -> Identity | None:
        host = request.client.host if request.client is not None else ""
        if host not in LOOPBACK or not _named_locally(request):
            return None
        return Identity("local", Role.ADMIN)

    def by_token(self, headers: Headers) -> bool:
        return False


class OwnCheck(_NoLogin):
    """A user's own callable, for pages inside their application."""

    def __init__(self, check: Identify) -> None:
        self._check = check

    async def identify(self, request: Request) -> Identity | None:
        found = self._check(request)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, str):
            return Identity("someone", role_named(found, source="the auth= callable"))
        return found

    def by_token(self, headers: Headers) -> bool:
        """What the check goes by is not known here: with a cookie it may be the cookie."""
        return bool(bearer_token(headers)) and "cookie" not in headers


class PasswordsAndTokens:
    """Credentials over one store, which keeps who is logged in.

    A session counts while the role has a password, and the one it was begun with.
    """

    def __init__(self, credentials: Credentials, sessions: Sessions) -> None:
        self._credentials = credentials
        self._sessions = sessions
        self._marks: dict[Role, tuple[bytes, bytes]] = {}
        self._marking = asyncio.Lock()

    @property
    def login(self) -> bool:
        return self._credentials.login

    async def identify(self, request: Request) -> Identity | None:
        token = bearer_token(request.headers)
        if token is not None:
            return self._credentials.bearer_of(token)
        found = [
            who
            for role, text in sessions_given(request.headers)
            if (who := await self._logged_in(role, text)) is not None
        ]
        # Of two that hold nobody can say which is meant.
        return found[0] if len(found) == 1 else None

    def by_token(self, headers: Headers) -> bool:
        return self._credentials.bearer_of(bearer_token(headers) or "") is not None

    async def enter(self, password: str) -> str | None:
        # dear on purpose, so not on the loop that serves everybody
        role = await asyncio.to_thread(self._credentials.role_of, password)
        if role is None:
            return None
        await self._sessions.key(afresh=True)
        return await self._sessions.begin(role.word, Session(role.word, await self._mark(role)))

    async def leave(self, request: Request) -> None:
        for role, text in sessions_given(request.headers):
            await self._sessions.end(role.word, text)

    async def _logged_in(self, role: Role, text: str) -> Identity | None:
        if self._credentials.password_of(role) is None:
            return None
        session = await self._sessions.find(role.word, text)
        if session is None or not hmac.compare_digest(session.mark, await self._mark(role)):
            return None
        return Identity(session.name, role)

    async def _mark(self, role: Role) -> bytes:
        """What changes with the password of a role, and tells no more of it than a hash would:
        made once, because it is as dear as one."""
        key = await self._sessions.key()
        async with self._marking:
            known = self._marks.get(role)
            if known is None or known[0] != key:
                secret = f"{role.word}={self._credentials.password_of(role)}"
                known = (key, await asyncio.to_thread(stretch, secret, key))
                self._marks[role] = known
            return known[1]


def _named_locally(request: Request) -> bool:
    """A foreign name that leads here is a page of somebody else's (DNS rebinding)."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.strip("[]") in LOOPBACK
