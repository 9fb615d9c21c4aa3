"""The door: everything between an update's arrival and the word that it was taken.

It judges updates in a fixed order, for webhooks and polling alike; the HTTP side of it, with slug,
secret and body, is in ``webhook``.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

from forge_jobs import Clock, Closed, JobOutcome, StoreError

from .bot_api import ApiError, BotApi, Unreachable
from .calls import Call, message
from .config import Bot, HandlerName, Settings, SyncFailure
from .handlers.contract import Handler
from .metrics import GatewayMetrics
from .queueing import BotQueue
from .sending import Outgoing
from .storage import CachedGatewayStore, GatewayStore, StoreAway
from .update import Update, read_update

_LOG: Final = logging.getLogger("telegram_gateway.update_receiver")
_MAX_SEEN: Final = 10_000
_ESCAPED: Final = re.compile(rb"\\u00([0-7][0-9a-fA-F])")
_QUARANTINE_BYTES: Final = 4_096
_PROMPT_EVERY_S: Final = 60.0
_MAX_SYNC_S: Final = 45.0
_MAX_SORRY_S: Final = 5.0
_PROMPT: Final = "Please open a session first: send /auth and your code to the access bot."
_SORRY: Final = "Sorry, that did not work. Please try again later."


class UpdateVerdict(StrEnum):
    """What became of an update at the door."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    RUNNING = "running"
    HANDLED = "handled"
    DROPPED = "dropped"
    GATED = "gated"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    FULL = "full"

    @property
    def taken(self) -> bool:
        """Whether Telegram may forget the update."""
        return self not in (UpdateVerdict.UNAVAILABLE, UpdateVerdict.FULL, UpdateVerdict.RUNNING)


class BotRuntime:
    """One bot with what answers for it."""

    def __init__(
        self, bot: Bot, handler: Handler, outgoing: Outgoing, queue: BotQueue | None
    ) -> None:
        self.bot = bot
        self.handler = handler
        self.outgoing = outgoing
        self.queue = queue
        self._running: set[int] = set()
        self._done: OrderedDict[int, None] = OrderedDict()

    def known(self, update_id: int) -> UpdateVerdict | None:
        """What there is to say about an update that is not new. While it is being handled it may
        still fail, so Telegram has to keep it."""
        if update_id in self._running:
            return UpdateVerdict.RUNNING
        return UpdateVerdict.DUPLICATE if update_id in self._done else None

    @contextmanager
    def handling(self, update_id: int) -> Generator[None]:
        """However the block ends: only ``done`` makes it a duplicate when it comes again."""
        self._running.add(update_id)
        try:
            yield
        finally:
            self._running.discard(update_id)

    def done(self, update_id: int) -> None:
        """The update was handled and answered."""
        self._done[update_id] = None
        while len(self._done) > _MAX_SEEN:
            self._done.popitem(last=False)


class UpdateReceiver:
    """Takes updates in."""

    def __init__(
        self,
        settings: Settings,
        storage: GatewayStore,
        at_the_door: CachedGatewayStore,
        api: BotApi,
        clock: Clock,
        counters: GatewayMetrics,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._at_the_door = at_the_door
        self._api = api
        self._clock = clock
        self._counters = counters
        self._prompted: dict[int, float] = {}

    async def take(self, runtime: BotRuntime, body: bytes) -> UpdateVerdict:
        """Judge and dispatch one body whose sender is known to be Telegram."""
        try:
            verdict = await self._judge(runtime, body)
        except (StoreError, Closed, StoreAway, OSError) as error:
            _LOG.warning(
                "bot %s: the store is not available: %s", runtime.bot.slug, type(error).__name__
            )
            verdict = UpdateVerdict.UNAVAILABLE
        except Exception:
            # Whatever it was, the update is not stored: Telegram must keep it.
            _LOG.exception("bot %s: an update could not be taken", runtime.bot.slug)
            verdict = UpdateVerdict.UNAVAILABLE
        self._counters.count("gateway_updates_total", bot=runtime.bot.slug, outcome=str(verdict))
        return verdict

    async def _judge(self, runtime: BotRuntime, body: bytes) -> UpdateVerdict:
        bot = runtime.bot
        try:
            update = read_update(body)
        except ValueError:
            # What might hold a code is not kept, whatever shape it has.
            kept = b"" if b"auth" in _unescaped(body) else body[:_QUARANTINE_BYTES]
            await self._storage.quarantine(bot.id, self._clock.now(), kept)
            return UpdateVerdict.QUARANTINED
        if not bot.in_queue and (known := runtime.known(update.id)) is not None:
            return known
        if not self._is_allowed(bot, update):
            return UpdateVerdict.DROPPED
        if bot.handler is not HandlerName.AUTH:
            if holds_code(update) or self._holds_secret(update):
                return UpdateVerdict.DROPPED
            if bot.require_auth and not await self._has_session(bot, update):
                if update.user_id is not None:
                    await self._prompt(bot, update)
                return UpdateVerdict.GATED
        if runtime.queue is not None and bot.in_queue:
            return await self._stored(runtime.queue, update)
        return await self._at_once(runtime, update)

    async def _stored(self, queue: BotQueue, update: Update) -> UpdateVerdict:
        if await queue.depth.is_full():
            return UpdateVerdict.FULL
        job = await queue.take_in(update)
        if job.duplicate:
            return UpdateVerdict.DUPLICATE
        queue.depth.grew()
        return UpdateVerdict.ACCEPTED

    def _is_allowed(self, bot: Bot, update: Update) -> bool:
        users = self._settings.allowed_users
        if users and update.user_id not in users:
            return False
        if bot.allowed_users and update.user_id not in bot.allowed_users:
            return False
        return not bot.allowed_chats or update.chat_id in bot.allowed_chats

    def _holds_secret(self, update: Update) -> bool:
        """Whether the code stands anywhere in it: sent without its command, or quoted."""
        secret = self._settings.auth_secret
        return secret is not None and secret in update.raw

    async def _has_session(self, bot: Bot, update: Update) -> bool:
        if update.user_id is None:
            return False
        # An update that goes into the queue needs the store anyway.
        storage = self._storage if bot.in_queue else self._at_the_door
        return await storage.session_until(update.user_id, self._clock.now()) is not None

    async def _prompt(self, bot: Bot, update: Update) -> None:
        """One prompt a minute and user; it is not queued."""
        user, now = update.user_id or 0, self._clock.mono()
        if update.chat_id is None or now - self._prompted.get(user, -1e9) < _PROMPT_EVERY_S:
            return
        if len(self._prompted) >= _MAX_SEEN:
            self._prompted.clear()
        self._prompted[user] = now
        try:
            await self._try(bot, message(update.chat_id, _PROMPT, thread_id=update.thread_id))
        except BaseException:
            self._prompted.pop(user, None)
            raise

    async def _at_once(self, runtime: BotRuntime, update: Update) -> UpdateVerdict:
        # It may have come a second time while the session was looked up.
        if (known := runtime.known(update.id)) is not None:
            return known
        try:
            with runtime.handling(update.id):
                return await self._handled(runtime, update)
        finally:
            if runtime.bot.handler is HandlerName.AUTH and update.user_id is not None:
                self._at_the_door.forget_session(update.user_id)

    async def _handled(self, runtime: BotRuntime, update: Update) -> UpdateVerdict:
        bot = runtime.bot
        limit = asyncio.timeout(_MAX_SYNC_S)
        try:
            async with limit:
                for call in await runtime.handler.answer(update, 1):
                    await runtime.outgoing.send_now(call)
                runtime.done(update.id)
            return UpdateVerdict.HANDLED
        except JobOutcome as error:
            _LOG.warning("bot %s: update %d failed: %s", bot.slug, update.id, error)
        except TimeoutError:
            if not limit.expired():
                # A driver's own: the store is slow, not the handler.
                raise
            _LOG.warning("bot %s: update %d failed: timeout", bot.slug, update.id)
        if bot.sync_failure is SyncFailure.REDELIVER:
            return UpdateVerdict.UNAVAILABLE
        if update.chat_id is not None:
            await self._excuse(bot, message(update.chat_id, _SORRY, thread_id=update.thread_id))
        return UpdateVerdict.FAILED

    async def _excuse(self, bot: Bot, call: Call) -> None:
        """As well as it can be, and soon: Telegram waits 60 s for our answer."""
        try:
            async with asyncio.timeout(_MAX_SORRY_S):
                await self._try(bot, call)
        except TimeoutError:
            _LOG.info("bot %s: %s could not be sent in time", bot.slug, call.method)

    async def _try(self, bot: Bot, call: Call) -> Any:
        try:
            return await self._api.call(bot, call.method, call.parameters)
        except (ApiError, Unreachable) as error:
            _LOG.info("bot %s: %s could not be sent: %s", bot.slug, call.method, error)


def _unescaped(body: bytes) -> bytes:
    """In lower case, and ASCII characters that JSON hides behind \\u as they are."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), body).lower()


def holds_code(update: Update) -> bool:
    """Whether the text begins like the command that carries the secret code."""
    return (update.text or "").lstrip().lower().startswith("/auth")
