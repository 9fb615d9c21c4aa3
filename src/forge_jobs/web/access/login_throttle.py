"""Limits how often passwords are tried: per address and role, per role, and per browser that logged
in before."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.requests import Request

from forge_jobs.kit.clock import Clock
from forge_jobs.ops.login_attempts import (
    ANY_ROLE,
    LoginAttempts,
    device_of,
    pause_s,
    source_of,
    total_of,
)
from forge_jobs.ops.sessions import Sessions

from .identity import Role

DEVICE_COOKIE: Final = "forge_device"
DEVICE_LIFETIME_S: Final = 90 * 86_400
# A wrong password is answered after this.
FAILURE_DELAY_S: Final = 0.5
# Attempts of one source that are verified or delayed at the same time.
_MAX_AT_ONCE: Final = 2
_MAX_KNOWN_PAUSES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One login attempt. ``wait_s`` > 0: it is refused. ``only``: the one role whose password may
    be tried, because the user named it, or because the address is paused and the browser logged in
    with this role before. ``account``: whose failures are counted over all addresses."""

    source: str
    address: str | None
    wait_s: float = 0.0
    only: Role | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: failures of its source, the pause after it, and how many attempts were
    refused since the failure before."""

    failures: int
    wait_s: float
    refused: int


@dataclass(slots=True)
class _Source:
    """What this process knows of a source: a pause that saves reading the store, and attempts that
    were refused since its last failure."""

    paused_until: float = 0.0
    refused: int = 0


@dataclass(slots=True)
class LoginThrottle:
    """Admits attempts and counts failures. The failures are in the store; this process remembers
    pauses, so that refused attempts read nothing."""

    attempts: LoginAttempts
    sessions: Sessions
    clock: Clock
    _at_once: Counter[str] = field(default_factory=Counter[str])
    _sources: dict[str, _Source] = field(default_factory=dict[str, _Source])
    # scrypt uses a core: one verification at a time
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def admit(self, request: Request, named: Role | None = None) -> Attempt:
        """Whether this attempt may be verified now, and for which role; ``named`` is the role that
        the user chose."""
        address = None if request.client is None else request.client.host
        host, account = source_of(address), ANY_ROLE if named is None else named.word
        source = f"{host} {account}"
        wait_s = await self._wait_s(source) or await self._wait_in_total_s(host, account)
        if wait_s > 0 and (device := await self._device(request)) is not None:
            role, nonce = device
            if named in (None, role):
                device_source = f"device {nonce}"
                wait_s = await self._wait_s(device_source)
                return self._counted(Attempt(device_source, address, wait_s, role))
        return self._counted(Attempt(source, address, wait_s, named, account))

    async def _wait_in_total_s(self, host: str, account: str) -> float:
        """The pause of an account that is attacked from many addresses; 0 for one that has logged
        in to it."""
        wait_s = await self._wait_s(total_of(account))
        return 0.0 if wait_s > 0 and await self.attempts.is_known(host, account) else wait_s

    async def succeeded(self, attempt: Attempt, role: str) -> None:
        """Remember the address of a login."""
        await self.attempts.succeeded(source_of(attempt.address), role)

    async def failed(self, attempt: Attempt) -> Failure:
        """Count a failure of the source."""
        count = (await self.attempts.failed(attempt.source, attempt.account)).count
        known = self._known(attempt.source)
        known.paused_until = self.clock.mono() + pause_s(count)
        refused, known.refused = known.refused, 0
        return Failure(count, pause_s(count), refused)

    def started(self, attempt: Attempt) -> None:
        """An admitted attempt is being verified."""
        self._at_once[attempt.source] += 1

    def ended(self, attempt: Attempt) -> None:
        """An admitted attempt was answered."""
        self._at_once[attempt.source] -= 1
        if self._at_once[attempt.source] <= 0:
            del self._at_once[attempt.source]

    def _counted(self, attempt: Attempt) -> Attempt:
        if attempt.wait_s <= 0 and self._at_once[attempt.source] >= _MAX_AT_ONCE:
            attempt = replace(attempt, wait_s=FAILURE_DELAY_S * 2)
        if attempt.wait_s > 0:
            self._known(attempt.source).refused += 1
        return attempt

    async def _wait_s(self, source: str) -> float:
        known = self._sources.get(source)
        if known is not None and (left := known.paused_until - self.clock.mono()) > 0:
            return left
        wait_s = await self.attempts.wait_s(source)
        if wait_s > 0:
            self._known(source).paused_until = self.clock.mono() + wait_s
        return wait_s

    def _known(self, source: str) -> _Source:
        if len(self._sources) > _MAX_KNOWN_PAUSES:
            self._sources.clear()  # the store still has the pauses
        return self._sources.setdefault(source, _Source())

    async def _device(self, request: Request) -> tuple[Role, str] | None:
        cookie = request.cookies.get(DEVICE_COOKIE, "")
        found = device_of(await self.sessions.key(), cookie) if cookie else None
        if found is None or found[0].upper() not in Role.__members__:
            return None
        return Role[found[0].upper()], found[1]
