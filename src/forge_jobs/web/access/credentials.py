"""The ways in: nobody but this machine, a password, bearer tokens, or a user's own check."""

import hashlib
import hmac
import inspect
import os
from collections.abc import Mapping
from typing import Final, Protocol

from starlette.requests import Request

from forge_jobs.core.errors import BadConfig
from forge_jobs.core.instant import Instant

from .hashes import hash_token, is_hash, password_fits, stretch
from .identity import Identify, Identity, Role, role_named
from .sessions import COOKIE, Sessions

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost", "testclient"})
_PASSWORDS: Final = {
    "FORGE_WEB_PASSWORD": Role.ADMIN,
    "FORGE_WEB_PASSWORD_OPERATOR": Role.OPERATOR,
    "FORGE_WEB_PASSWORD_VIEWER": Role.VIEWER,
}
_SHORTEST: Final = 8


class Access(Protocol):
    """Decides who a request comes from."""

    @property
    def login(self) -> bool:
        """Whether there is a password to log in with."""
        ...

    async def identify(self, request: Request, now: Instant) -> Identity | None:
        """Who this is; None when nobody known."""
        ...

    def enter(self, password: str, now: Instant) -> str | None:
        """A session cookie for the right password."""
        ...

    def leave(self, request: Request, now: Instant) -> None:
        """End the session of a request; later ones with the same cookie come from nobody."""
        ...


class ThisMachineOnly:
    """No credentials: whoever sits at this machine is admin, everybody else is nobody."""

    login = False

    async def identify(self, request: Request, now: Instant) -> Identity | None:
        host = request.client.host if request.client is not None else ""
        if host not in LOOPBACK or not _named_locally(request):
            return None
        return Identity("local", Role.ADMIN)

    def enter(self, password: str, now: Instant) -> str | None:
        return None

    def leave(self, request: Request, now: Instant) -> None:
        return None


class Credentials:
    """Passwords by role, and tokens by their hash."""

    def __init__(
        self, passwords: Mapping[Role, str], tokens: Mapping[str, Identity] | None = None
    ) -> None:
        for role, password in passwords.items():
            if not is_hash(password) and len(password) < _SHORTEST:
                raise BadConfig(
                    f"the {role.word} password is shorter than {_SHORTEST} characters: "
                    "choose a longer one"
                )
        self._passwords = dict(sorted(passwords.items(), reverse=True))
        self._tokens = dict(tokens or {})
        self.login = bool(passwords)
        everything = "\n".join(f"{role.word}={text}" for role, text in self._passwords.items())
        self._sessions = Sessions(stretch(everything, b"forge-jobs session key"))

    async def identify(self, request: Request, now: Instant) -> Identity | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tokens.get(hash_token(token.strip()))
        cookie = request.cookies.get(COOKIE)
        return None if cookie is None else self._sessions.read(cookie, now)

    def enter(self, password: str, now: Instant) -> str | None:
        for role, kept in self._passwords.items():
            if _fits(password, kept):
                return self._sessions.issue(Identity(role.word, role), now)
        return None

    def leave(self, request: Request, now: Instant) -> None:
        cookie = request.cookies.get(COOKIE)
        if cookie is not None:
            self._sessions.end(cookie, now)


class OwnCheck:
    """A user's own callable, for pages inside their application."""

    login = False

    def __init__(self, check: Identify) -> None:
        self._check = check

    async def identify(self, request: Request, now: Instant) -> Identity | None:
        found = self._check(request)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, str):
            return Identity("someone", role_named(found, source="the auth= callable"))
        return found

    def enter(self, password: str, now: Instant) -> str | None:
        return None

    def leave(self, request: Request, now: Instant) -> None:
        return None


def from_environment(environ: Mapping[str, str] | None = None) -> Credentials | None:
    """What FORGE_WEB_PASSWORD and FORGE_WEB_TOKENS say; None when neither is set."""
    env = os.environ if environ is None else environ
    passwords = {role: env[name] for name, role in _PASSWORDS.items() if env.get(name)}
    tokens = _tokens(env.get("FORGE_WEB_TOKENS", ""))
    return Credentials(passwords, tokens) if passwords or tokens else None


def _tokens(text: str) -> dict[str, Identity]:
    """``name:role:sha256`` entries, separated by commas."""
    tokens: dict[str, Identity] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        parts = entry.split(":")
        if len(parts) != 3 or len(parts[2]) != 64:
            raise BadConfig(
                "FORGE_WEB_TOKENS: each entry is name:role:hash as `forge web token` prints it"
            )
        name, role, hashed = parts
        tokens[hashed.lower()] = Identity(name, role_named(role, source="FORGE_WEB_TOKENS"))
    return tokens


def _fits(password: str, kept: str) -> bool:
    if is_hash(kept):
        return password_fits(password, kept)
    salt = hashlib.sha256(kept.encode()).digest()
    return hmac.compare_digest(stretch(password, salt), stretch(kept, salt))


def _named_locally(request: Request) -> bool:
    """A foreign name that leads here is a page of somebody else's (DNS rebinding)."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.strip("[]") in LOOPBACK
