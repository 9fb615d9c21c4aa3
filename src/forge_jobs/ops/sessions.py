"""Who is logged in, kept in the store: a log-out holds in every process and after a restart.

A session is known by a text that nobody can guess. The store keeps a keyed hash of it and never the
text, so that whoever reads the store cannot take a session over. The key is 256 random bits, made
by the first process that needs it and the same for all; it follows from no password.
"""

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.kit.entropy import SECRET_ENTROPY
from forge_jobs.store.store import Store

LIFE_S: Final = 12 * 3600
# For each role: whoever has one password cannot push the sessions of another role out.
MAX_SESSIONS: Final = 500
_SECRET_BITS: Final = 256
_KEY_PLACE: Final = ("web", "session key")
_MAX_PURGED: Final = 500


class Session(Struct, frozen=True):
    """Who logged in. ``mark`` changes with the credential that let them in."""

    name: str
    mark: bytes


class Sessions:
    """The sessions of one store. Errors of the store are raised: without it nobody is known."""

    def __init__(self, ready: Callable[[], Awaitable[Store]]) -> None:
        self._ready = ready
        self._key: bytes | None = None

    async def key(self, *, afresh: bool = False) -> bytes:
        """The random key of this store; ``afresh`` reads it again."""
        if self._key is None or afresh:
            settings = (await self._ready()).settings
            kept = await settings.get(*_KEY_PLACE)
            kept = kept or await settings.put_if_absent(*_KEY_PLACE, _random())
            self._key = kept.value
        return self._key

    async def begin(self, role: str, session: Session) -> str:
        """Keep a session for 12 hours; the text that stands for it. Sessions that are over go, and
        of more than 500 of a role the oldest."""
        settings = (await self._ready()).settings
        text = f"{role}.{base64.urlsafe_b64encode(_random()).decode().rstrip('=')}"
        await settings.purge(limit=_MAX_PURGED)
        await settings.put(
            _namespace(role), await self._name(text), msgspec.json.encode(session), ttl_s=LIFE_S
        )
        await settings.trim(_namespace(role), keep=MAX_SESSIONS)
        return text

    async def find(self, role: str, text: str) -> Session | None:
        """The session that a text stands for; None for one that ended, or never was, or is of
        another store or role."""
        settings = (await self._ready()).settings
        kept = await settings.get(_namespace(role), await self._name(text))
        try:
            return None if kept is None else msgspec.json.decode(kept.value, type=Session)
        except msgspec.DecodeError:
            # of another version of this library: its people log in again
            return None

    async def end(self, role: str, text: str) -> None:
        """From now on the text is worth nothing, wherever it is shown."""
        settings = (await self._ready()).settings
        await settings.delete(_namespace(role), await self._name(text))

    async def _name(self, text: str) -> str:
        return hmac.new(await self.key(), text.encode(), hashlib.sha256).hexdigest()


def _namespace(role: str) -> str:
    return f"web.session.{role}"


def _random() -> bytes:
    return SECRET_ENTROPY.bits(_SECRET_BITS).to_bytes(_SECRET_BITS // 8, "big")
