"""Login sessions in the store, so that a logout holds in every process and after a restart.

A session is identified by a random token. The store holds only a keyed hash (HMAC-SHA-256) of the
token, so that read access to the store does not give access to a session. The key is 256 random
bits, created by the first process that needs it and shared by all; it is not derived from a
password.
"""

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.kit.entropy import SECRET_ENTROPY
from forge_jobs.store.settings import put_if_absent
from forge_jobs.store.store import Store

SESSION_LIFETIME_S: Final = 12 * 3600
# Per role, so that logins of one role cannot evict the sessions of another.
MAX_SESSIONS: Final = 500
_SECRET_BITS: Final = 256
_KEY_SETTING: Final = ("web", "session key")
_PURGE_LIMIT: Final = 500


class Session(Struct, frozen=True):
    """Who logged in. ``mark`` is derived from the password: a new password ends the session."""

    name: str
    mark: bytes


class Sessions:
    """The sessions of one store. Errors of the store are raised."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._key: bytes | None = None

    async def key(self, *, reread: bool = False) -> bytes:
        """The HMAC key of this store, cached; ``reread`` reads it from the store again."""
        if self._key is None or reread:
            settings = (await self._open_store()).settings
            setting = await settings.get(*_KEY_SETTING)
            setting = setting or await put_if_absent(settings, *_KEY_SETTING, _random_bytes())
            self._key = setting.value
        return self._key

    async def begin(self, role: str, session: Session) -> str:
        """Store a session for 12 hours and return its token. Deletes expired sessions, and the
        oldest ones beyond 500 of a role."""
        settings = (await self._open_store()).settings
        token = f"{role}.{base64.urlsafe_b64encode(_random_bytes()).decode().rstrip('=')}"
        await settings.purge(limit=_PURGE_LIMIT)
        await settings.put(
            _namespace(role),
            await self._setting_name(token),
            msgspec.json.encode(session),
            ttl_s=SESSION_LIFETIME_S,
        )
        await settings.trim(_namespace(role), keep=MAX_SESSIONS)
        return token

    async def find(self, role: str, token: str) -> Session | None:
        """The session of a token; None if it has ended, or is unknown to this store and role."""
        settings = (await self._open_store()).settings
        setting = await settings.get(_namespace(role), await self._setting_name(token))
        try:
            return None if setting is None else msgspec.json.decode(setting.value, type=Session)
        except msgspec.DecodeError:
            # written by another version of this library: log in again
            return None

    async def end(self, role: str, token: str) -> None:
        """Delete a session: its token is no longer valid in any process."""
        settings = (await self._open_store()).settings
        await settings.delete(_namespace(role), await self._setting_name(token))

    async def _setting_name(self, token: str) -> str:
        return hmac.new(await self.key(), token.encode(), hashlib.sha256).hexdigest()


def _namespace(role: str) -> str:
    return f"web.session.{role}"


def _random_bytes() -> bytes:
    return SECRET_ENTROPY.bits(_SECRET_BITS).to_bytes(_SECRET_BITS // 8, "big")
