"""Sessions and send limits for inline bots, which keep working while the store is unavailable.

A store that fails or does not reply within a second counts as unavailable. After five seconds one
update at a time probes it; so an outage delays an update by at most a second, and most not at all.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from forge_jobs import Clock
from telegram_gateway.flood import SendLimit

from .contract import GatewayStore
from .memory import MemoryGatewayStore

T = TypeVar("T")
STORE_TIMEOUT_S: Final = 1.0
STORE_RETRY_S: Final = 5.0
# How long a cached session is valid while the store is unavailable: another process may have ended
# it since.
SESSION_CACHE_S: Final = 600.0
_MAX_SESSIONS: Final = 10_000
_LOG: Final = logging.getLogger("telegram_gateway.storage")


class StoreUnavailable(Exception):
    """The store failed or did not reply in time."""


class _CachedSession(NamedTuple):
    until: int
    read_at_s: float


class CachedGatewayStore:
    """Reads from the store, and falls back to what this process has cached."""

    def __init__(self, storage: GatewayStore, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._local = MemoryGatewayStore()
        self._sessions: OrderedDict[int, _CachedSession] = OrderedDict()
        self._unavailable = False
        self._probing = False
        self._retry_at_s = 0.0

    async def session_until(self, user_id: int, now: int) -> int | None:
        """When the user's session ends. Raises StoreUnavailable if the session is not cached and
        the store does not reply; the store is called each time then."""
        known = self._sessions.get(user_id)
        if known is not None and self._clock.mono() - known.read_at_s > SESSION_CACHE_S:
            known = None
        try:
            until = await self._call_store(
                lambda: self._storage.session_until(user_id, now), required=known is None
            )
        except StoreUnavailable:
            if known is None:
                raise
            return known.until if known.until > now else None
        self.forget_session(user_id)
        if until is not None:
            self._sessions[user_id] = _CachedSession(until, self._clock.mono())
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return until

    def forget_session(self, user_id: int) -> None:
        """Drop a cached session that may have changed."""
        self._sessions.pop(user_id, None)

    async def acquire(self, wanted: Sequence[SendLimit], now: int) -> int:
        """``GatewayStore.acquire``. While the store is unavailable, limits are per process."""
        try:
            return await self._call_store(lambda: self._storage.acquire(wanted, now))
        except StoreUnavailable:
            return await self._local.acquire(wanted, now)

    async def _call_store(self, call: Callable[[], Awaitable[T]], *, required: bool = False) -> T:
        if (
            not required
            and self._unavailable
            and (self._probing or self._clock.mono() < self._retry_at_s)
        ):
            raise StoreUnavailable("the store did not reply a moment ago")
        probing = self._unavailable
        self._probing = self._probing or probing
        task = asyncio.ensure_future(call())
        try:
            # Not asyncio.timeout: a cancelled driver cleans up first, and that waits for the store,
            # too.
            await asyncio.wait({task}, timeout=STORE_TIMEOUT_S)
            if not task.done():
                raise TimeoutError
            result = task.result()
        except Exception as error:
            self._mark_unavailable(error)
            raise StoreUnavailable(f"the store does not reply: {type(error).__name__}") from error
        finally:
            if probing:
                self._probing = False
            if not task.done():
                task.add_done_callback(_discard_result)
                task.cancel()
        if self._unavailable:
            self._unavailable = False
            _LOG.info("the store replies again")
        return result

    def _mark_unavailable(self, error: Exception) -> None:
        if not self._unavailable:
            _LOG.warning(
                "the store does not reply (%s): inline bots continue without it",
                type(error).__name__,
            )
        self._unavailable = True
        self._retry_at_s = self._clock.mono() + STORE_RETRY_S


def _discard_result(task: "asyncio.Future[Any]") -> None:
    """Retrieve the error of an abandoned call, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
