"""Receives updates: everything between an update's arrival and its acknowledgement to Telegram.

The checks have a fixed order and are the same for webhooks and polling. The HTTP part (slug, secret
and body) is in ``webhook``.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple

from forge_jobs import Clock, Closed, JobOutcome, StoreError

from .bot_api import ApiError, BotApi, NoResponse
from .calls import Call, reply
from .config import Bot, HandlerName, Settings, SyncFailure
from .handlers.contract import Handler
from .metrics import GatewayMetrics
from .queueing import BotQueue
from .sending import Outgoing
from .storage import CachedGatewayStore, GatewayStore, StoreUnavailable
from .update import Update, read_update

_LOG: Final = logging.getLogger("telegram_gateway.update_receiver")
_MAX_SEEN: Final = 10_000
_ESCAPED: Final = re.compile(rb"\\u00([0-7][0-9a-fA-F])")
_CODE_COMMAND: Final = re.compile(r"\s*/auth(?!\w)", re.IGNORECASE)
_QUARANTINE_BYTES: Final = 64 << 10
_PROMPT_EVERY_S: Final = 60.0
_MAX_SYNC_S: Final = 45.0
_MAX_APOLOGY_S: Final = 5.0
_PROMPT: Final = "Please open a session first: send /auth and your code to the access bot."
_APOLOGY: Final = "Sorry, that did not work. Please try again later."


class ReceiveStatus(StrEnum):
    """The result of receiving an update; the label ``outcome`` of the metrics."""

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
    def acknowledged(self) -> bool:
        """Whether the update is acknowledged with 200; if not, Telegram redelivers it."""
        return self not in (ReceiveStatus.UNAVAILABLE, ReceiveStatus.FULL, ReceiveStatus.RUNNING)


_UNUSUAL: Final = frozenset(
    {
        ReceiveStatus.QUARANTINED,
        ReceiveStatus.FAILED,
        ReceiveStatus.UNAVAILABLE,
        ReceiveStatus.FULL,
    }
)


class _Received(NamedTuple):
    """A status, and what the log line says about it: the job or the reason."""

    status: ReceiveStatus
    detail: str = ""
    job_id: str | None = None


class BotRuntime:
    """One bot with its handler, its queue, and the inline updates it is handling or has handled."""

    def __init__(
        self, bot: Bot, handler: Handler, outgoing: Outgoing, queue: BotQueue | None
    ) -> None:
        self.bot = bot
        self.handler = handler
        self.outgoing = outgoing
        self.queue = queue
        self._running: set[int] = set()
        self._done: OrderedDict[int, None] = OrderedDict()

    def status_of(self, update_id: int) -> ReceiveStatus | None:
        """The status of an update that is not new, else None. While it is being handled it may
        still fail, so it is not acknowledged."""
        if update_id in self._running:
            return ReceiveStatus.RUNNING
        return ReceiveStatus.DUPLICATE if update_id in self._done else None

    @contextmanager
    def handling(self, update_id: int) -> Generator[None]:
        """Mark the update as running inside the block. Only ``mark_done`` makes it a duplicate."""
        self._running.add(update_id)
        try:
            yield
        finally:
            self._running.discard(update_id)

    def mark_done(self, update_id: int) -> None:
        """Remember that the update was handled; the last 10,000 are kept."""
        self._done[update_id] = None
        while len(self._done) > _MAX_SEEN:
            self._done.popitem(last=False)


class UpdateReceiver:
    """Checks updates, then enqueues them or runs their handler inline."""

    def __init__(
        self,
        settings: Settings,
        storage: GatewayStore,
        cached_storage: CachedGatewayStore,
        api: BotApi,
        clock: Clock,
        counters: GatewayMetrics,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._cached_storage = cached_storage
        self._api = api
        self._clock = clock
        self._counters = counters
        self._prompted: dict[int, float] = {}

    async def receive(self, runtime: BotRuntime, body: bytes) -> ReceiveStatus:
        """Check and dispatch one body that is known to come from Telegram, and log one line."""
        slug = runtime.bot.slug
        update, reason = _read(body)
        try:
            received = (
                await self._quarantine(runtime.bot, body, reason)
                if update is None
                else await self._process(runtime, update)
            )
        except (StoreError, Closed, StoreUnavailable, OSError) as error:
            detail = f"the store is not available ({type(error).__name__})"
            received = _Received(ReceiveStatus.UNAVAILABLE, detail)
        except Exception:
            # The update is not stored, so it must not be acknowledged.
            _LOG.exception("bot %s: %s could not be received", slug, _label(update))
            received = _Received(ReceiveStatus.UNAVAILABLE, "an unexpected error, see above")
        status = received.status
        self._counters.count("gateway_updates_total", bot=slug, outcome=str(status))
        level = logging.WARNING if status in _UNUSUAL else logging.INFO
        if _LOG.isEnabledFor(level):
            _log_received(level, slug, update, received)
        return status

    async def _quarantine(self, bot: Bot, body: bytes, reason: str) -> _Received:
        # A body that might contain a code is not stored, in whatever form.
        plain, secret = _unescape(body), self._settings.auth_secret
        withheld = b"auth" in plain or (secret is not None and secret.lower() in plain)
        number = await self._storage.quarantine(
            bot.id,
            self._clock.now(),
            b"" if withheld else body[:_QUARANTINE_BYTES],
            reason=reason,
            size=len(body),
        )
        text = f"{reason}; {len(body):,} bytes; see `telegram-gateway quarantine show {number}`"
        return _Received(ReceiveStatus.QUARANTINED, text)

    async def _process(self, runtime: BotRuntime, update: Update) -> _Received:
        bot = runtime.bot
        if not bot.in_queue and (status := runtime.status_of(update.id)) is not None:
            return _Received(status)
        if not self._is_allowed(bot, update):
            return _Received(ReceiveStatus.DROPPED, "user or chat is not allowed")
        if bot.handler is not HandlerName.AUTH:
            if contains_code(update) or self._contains_secret(update):
                return _Received(ReceiveStatus.DROPPED, "may contain a code")
            if bot.require_auth and not await self._has_session(bot, update):
                if update.user_id is not None:
                    await self._prompt(bot, update)
                return _Received(ReceiveStatus.GATED, "no session")
        if runtime.queue is not None and bot.in_queue:
            return await self._enqueue(runtime.queue, update)
        return await self._handle_inline(runtime, update)

    async def _enqueue(self, queue: BotQueue, update: Update) -> _Received:
        if await queue.backlog.is_full():
            limit = f"{queue.bot.max_waiting:,} updates wait (maxWaiting)"
            return _Received(ReceiveStatus.FULL, limit)
        job = await queue.enqueue_update(update)
        if job.duplicate:
            return _Received(ReceiveStatus.DUPLICATE, f"job {job.id}", job.id)
        queue.backlog.increment()
        return _Received(ReceiveStatus.ACCEPTED, f"job {job.id}", job.id)

    def _is_allowed(self, bot: Bot, update: Update) -> bool:
        users = self._settings.allowed_users
        if users and update.user_id not in users:
            return False
        if bot.allowed_users and update.user_id not in bot.allowed_users:
            return False
        return not bot.allowed_chats or update.chat_id in bot.allowed_chats

    def _contains_secret(self, update: Update) -> bool:
        """Whether the update contains the code anywhere: without its command, or quoted."""
        secret = self._settings.auth_secret
        return secret is not None and secret in update.raw

    async def _has_session(self, bot: Bot, update: Update) -> bool:
        if update.user_id is None:
            return False
        # An update that will be enqueued needs the store anyway.
        storage = self._storage if bot.in_queue else self._cached_storage
        return await storage.session_until(update.user_id, self._clock.now()) is not None

    async def _prompt(self, bot: Bot, update: Update) -> None:
        """Ask the user to log in, at most once a minute; sent immediately, without a job."""
        user, now = update.user_id or 0, self._clock.mono()
        prompt = None if update.chat_id is None else reply(update, _PROMPT)
        if prompt is None or now - self._prompted.get(user, -1e9) < _PROMPT_EVERY_S:
            return
        if len(self._prompted) >= _MAX_SEEN:
            self._prompted.clear()
        self._prompted[user] = now
        try:
            await self._try_call(bot, prompt)
        except BaseException:
            self._prompted.pop(user, None)
            raise

    async def _handle_inline(self, runtime: BotRuntime, update: Update) -> _Received:
        # The same update may have arrived again while the session was read.
        if (status := runtime.status_of(update.id)) is not None:
            return _Received(status)
        try:
            with runtime.handling(update.id):
                return await self._run_inline(runtime, update)
        finally:
            if runtime.bot.handler is HandlerName.AUTH and update.user_id is not None:
                self._cached_storage.forget_session(update.user_id)

    async def _run_inline(self, runtime: BotRuntime, update: Update) -> _Received:
        bot = runtime.bot
        limit = asyncio.timeout(_MAX_SYNC_S)
        try:
            async with limit:
                for call in await runtime.handler.answer(update, 1):
                    await runtime.outgoing.send_now(call)
                runtime.mark_done(update.id)
            return _Received(ReceiveStatus.HANDLED)
        except JobOutcome as error:
            reason = str(error)
        except TimeoutError:
            if not limit.expired():
                # A timeout of the database driver: the store is slow, not the handler.
                raise
            reason = f"not handled within {_MAX_SYNC_S:g} s"
        if bot.sync_failure is SyncFailure.REDELIVER:
            return _Received(ReceiveStatus.UNAVAILABLE, reason)
        if update.chat_id is not None and (apology := reply(update, _APOLOGY)) is not None:
            await self._send_apology(bot, apology)
        return _Received(ReceiveStatus.FAILED, reason)

    async def _send_apology(self, bot: Bot, call: Call) -> None:
        """Best effort and with a short time limit: Telegram waits 60 s for the response."""
        try:
            async with asyncio.timeout(_MAX_APOLOGY_S):
                await self._try_call(bot, call)
        except TimeoutError:
            _LOG.warning(
                "bot %s: %s to chat %s was not sent within %g s",
                bot.slug,
                call.method,
                call.chat_id,
                _MAX_APOLOGY_S,
            )

    async def _try_call(self, bot: Bot, call: Call) -> Any:
        try:
            return await self._api.call(bot, call.method, call.parameters)
        except (ApiError, NoResponse) as error:
            _LOG.warning(
                "bot %s: %s to chat %s was not sent: %s",
                bot.slug,
                call.method,
                call.chat_id,
                error,
            )


def _read(body: bytes) -> tuple[Update | None, str]:
    """The update, or None and the reason why the body is not one."""
    try:
        return read_update(body), ""
    except ValueError as error:
        return None, str(error)


def _label(update: Update | None) -> str:
    return "a body that is not an update" if update is None else update.label


def _log_received(level: int, slug: str, update: Update | None, received: _Received) -> None:
    fields: dict[str, Any] = {"bot": slug, "job_id": received.job_id}
    if update is not None:
        fields |= {"update_id": update.id, "chat_id": update.chat_id}
    _LOG.log(
        level,
        "bot %s: %s: %s%s",
        slug,
        _label(update),
        received.status,
        f", {received.detail}" if received.detail else "",
        extra=fields,
    )


def _unescape(body: bytes) -> bytes:
    """The body in lower case, with JSON's \\u escapes of ASCII characters decoded."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), body).lower()


def contains_code(update: Update) -> bool:
    """Whether the text begins with the command that carries the secret code, as a whole word:
    ``/auth code`` or ``/auth@BotName code``, not ``/authors``."""
    return _CODE_COMMAND.match(update.text or "") is not None
