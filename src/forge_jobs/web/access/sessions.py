"""Signed cookies: who logged in, as what, until when. Only what ended early is remembered."""

import hashlib
import hmac
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import SECOND, Instant

from .identity import Identity, Role

COOKIE: Final = "forge_session"
LIFE_S: Final = 12 * 3600


class _Ticket(Struct, frozen=True, array_like=True):
    name: str
    role: int
    until: Instant


class Sessions:
    """Makes and reads the cookies of one set of credentials.

    The key follows from the credentials themselves, so that sessions outlive a restart, hold on
    every process behind a balancer, and end when the password changes. Logging out is known to
    this process alone: elsewhere a copy of the cookie holds until its time is over.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._ended: dict[str, Instant] = {}

    def issue(self, identity: Identity, now: Instant) -> str:
        """The cookie's text."""
        ticket = _Ticket(identity.name, int(identity.role), now + LIFE_S * SECOND)
        body = msgspec.json.encode(ticket).hex()
        return f"{body}.{self._sign(body)}"

    def read(self, cookie: str, now: Instant) -> Identity | None:
        """Who this is, or None for a cookie that is forged, foreign, ended or past its time."""
        ticket = self._ticket(cookie)
        if ticket is None or ticket.until <= now or cookie in self._ended:
            return None
        return Identity(ticket.name, Role(ticket.role))

    def end(self, cookie: str, now: Instant) -> None:
        """Let a cookie be worth nothing from now on."""
        ticket = self._ticket(cookie)
        if ticket is not None:
            lasting = {one: until for one, until in self._ended.items() if until > now}
            self._ended = {**lasting, cookie: ticket.until}

    def _ticket(self, cookie: str) -> _Ticket | None:
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(self._sign(body).encode(), signature.encode()):
            return None
        return msgspec.json.decode(bytes.fromhex(body), type=_Ticket)

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()
