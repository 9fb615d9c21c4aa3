"""What bots at the door ask of the store: sessions and limits. They go on while it is away.

A store that fails or is silent for a second is away. It is asked again after five seconds, by one
update at a time; so an outage costs an update a second at most, and most updates nothing.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from forge_jobs import Clock
from telegram_gateway.flood import Allowance

from .contract import GatewayStore
from .memory import MemoryGatewayStore

T = TypeVar("T")
ANSWERS_WITHIN_S: Final = 1.0
AGAIN_AFTER_S: Final = 5.0
# For so long a session counts that was read before the store went away: it may have been ended
# elsewhere since.
TRUSTED_S: Final = 600.0
_MAX_SESSIONS: Final = 10_000
_LOG: Final = logging.getLogger("telegram_gateway.storage")


class StoreAway(Exception):
    """The store failed or did not answer in time."""


class _Session(NamedTuple):
    until: int
    read_at_s: float


class CachedGatewayStore:
    """The store's answers, or what this process knows by itself."""

    def __init__(self, storage: GatewayStore, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._own = MemoryGatewayStore()
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._away = False
        self._trying = False
        self._again_at_s = 0.0

    async def session_until(self, user_id: int, now: int) -> int | None:
        """When the user's session ends. StoreAway when only the store could tell, and it does not:
        it is asked each time then."""
        known = self._sessions.get(user_id)
        if known is not None and self._clock.mono() - known.read_at_s > TRUSTED_S:
            known = None
        try:
            until = await self._asked(
                lambda: self._storage.session_until(user_id, now), needed=known is None
            )
        except StoreAway:
            if known is None:
                raise
            return known.until if known.until > now else None
        self.forget_session(user_id)
        if until is not None:
            self._sessions[user_id] = _Session(until, self._clock.mono())
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return until

    def forget_session(self, user_id: int) -> None:
        """The session may have changed: the store has to be asked."""
        self._sessions.pop(user_id, None)

    async def take(self, wanted: Sequence[Allowance], now: int) -> int:
        """``GatewayStore.take``. While the store is away this process limits by itself."""
        try:
            return await self._asked(lambda: self._storage.take(wanted, now))
        except StoreAway:
            return await self._own.take(wanted, now)

    async def _asked(self, question: Callable[[], Awaitable[T]], *, needed: bool = False) -> T:
        if not needed and self._away and (self._trying or self._clock.mono() < self._again_at_s):
            raise StoreAway("the store did not answer a moment ago")
        trying = self._away
        self._trying = self._trying or trying
        task = asyncio.ensure_future(question())
        try:
            # Not a time limit around the question: a driver that is cancelled tidies up first, and
            # that waits for the store, too.
            await asyncio.wait({task}, timeout=ANSWERS_WITHIN_S)
            if not task.done():
                raise TimeoutError
            found = task.result()
        except Exception as error:
            self._note_away(error)
            raise StoreAway(f"the store does not answer: {type(error).__name__}") from error
        finally:
            if trying:
                self._trying = False
            if not task.done():
                task.add_done_callback(_ignored)
                task.cancel()
        if self._away:
            self._away = False
            _LOG.info("the store answers again")
        return found

    def _note_away(self, error: Exception) -> None:
        if not self._away:
            _LOG.warning(
                "the store does not answer (%s): bots at the door go on without it",
                type(error).__name__,
            )
        self._away = True
        self._again_at_s = self._clock.mono() + AGAIN_AFTER_S


def _ignored(task: "asyncio.Future[Any]") -> None:
    """Whoever asked has left; an error that nobody reads would be logged as forgotten."""
    if not task.cancelled():
        task.exception()
