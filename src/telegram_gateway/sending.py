"""Sends one outgoing call: applies the send limits, and maps Telegram's response to an outcome."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from forge_jobs import Clock, Dead, Failed, Snooze, Throttled

from .bot_api import ApiError, BotApi, NoResponse, RequestNotSent
from .calls import Call
from .config import Bot
from .flood import SendLimit, bot_limit, chat_limits
from .metrics import GatewayMetrics
from .storage import CachedGatewayStore, GatewayStore

Acquire: TypeAlias = Callable[[Sequence[SendLimit], int], Awaitable[int]]

_LOG: Final = logging.getLogger("telegram_gateway.sending")
_SECOND: Final = 1_000_000
_MARGIN_S: Final = 0.1
_REFUSED_WAIT_S: Final = 300.0
_OUTAGE_WAIT_S: Final = 10.0
_MAX_INLINE_WAIT_S: Final = 10.0


class Outgoing:
    """Sends the calls of one bot."""

    def __init__(
        self,
        bot: Bot,
        api: BotApi,
        storage: GatewayStore,
        cached_storage: CachedGatewayStore,
        clock: Clock,
        counters: GatewayMetrics,
    ) -> None:
        self._bot = bot
        self._api = api
        self._storage = storage
        self._cached_storage = cached_storage
        self._counters = counters
        self._clock = clock
        self._moved: dict[str, int] = {}
        self._throttled_until = 0.0

    async def send(self, call: Call, permit: Callable[[], Awaitable[None]]) -> Any:
        """Make the call, or raise an outcome that says whether and when to retry.

        ``permit`` acquires a permit of the bot's rate limit, or raises. 429 throttles all sends of
        the bot, since Telegram does not say which limit was exceeded. So do a refused token and an
        outage of Telegram. None of these spends an attempt.
        """
        return await self._send_with(call, self._storage.acquire, permit)

    async def _send_with(
        self, call: Call, acquire: Acquire, permit: Callable[[], Awaitable[None]]
    ) -> Any:
        wait_s = await self._flood_wait_s(call, acquire)
        if wait_s > 0:
            raise Snooze(wait_s)
        await permit()
        self._check_throttle()
        try:
            result = await self._call_api(call)
        except RequestNotSent as error:
            raise self._outage(error) from None
        except NoResponse as error:
            self._count("unreachable")
            raise Failed(str(error)) from None
        except ApiError as error:
            raise await self._outcome_of(error) from None
        self._count("sent")
        return result

    async def send_now(self, call: Call) -> Any:
        """``send`` without a job: sleeps through short waits instead of snoozing. It works without
        the store; the limits are then those of this process alone."""
        left_s = _MAX_INLINE_WAIT_S
        while True:
            try:
                return await self._send_with(
                    call, self._cached_storage.acquire, self._acquire_bot_permit
                )
            except Snooze as snooze:
                left_s -= snooze.delay_s
                if left_s < 0:
                    raise
                await self._clock.sleep(snooze.delay_s)

    async def _acquire_bot_permit(self) -> None:
        wait_us = await self._cached_storage.acquire([bot_limit(self._bot.id)], self._clock.now())
        if wait_us:
            raise Snooze(wait_us / _SECOND)

    def _check_throttle(self) -> None:
        """Stop sends that passed the limits before another send got a 429."""
        left_s = self._throttled_until - self._clock.mono()
        if left_s > 0:
            raise Throttled(left_s)

    async def _flood_wait_s(self, call: Call, acquire: Acquire) -> float:
        wanted = chat_limits(self._bot.id, call.chat_id)
        try:
            return await acquire(wanted, self._clock.now()) / _SECOND
        except Exception as error:
            # Fail open: sending too early only gets a 429, which is obeyed.
            _LOG.warning("bot %s: send limits not read: %s", self._bot.slug, type(error).__name__)
            return 0.0

    async def _call_api(self, call: Call) -> Any:
        moved = self._moved.get(str(call.chat_id))
        parameters = call.parameters if moved is None else {**call.parameters, "chat_id": moved}
        try:
            return await self._api.call(self._bot, call.method, parameters)
        except ApiError as error:
            if error.moved_to is None or call.chat_id is None:
                raise
            self._moved[str(call.chat_id)] = error.moved_to
            again = {**call.parameters, "chat_id": error.moved_to}
            return await self._api.call(self._bot, call.method, again)

    async def _outcome_of(self, error: ApiError) -> Exception:
        match error.code:
            case 429:
                wait_s = error.retry_after_s or 1.0
                self._throttled_until = self._clock.mono() + wait_s + _MARGIN_S
                self._count("flood")
                self._counters.count("gateway_flood_wait_seconds_total", wait_s, bot=self._bot.slug)
                return Throttled(wait_s + _MARGIN_S)
            case 400 | 403:
                self._count("refused")
                return Dead(str(error))
            case 404 if await self._api.accepts_token(self._bot):
                self._count("refused")
                return Dead(str(error))
            case 401 | 404:
                self._count("unauthorised")
                return Throttled(_REFUSED_WAIT_S)
            case code if code >= 500 and not await self._api.is_available(self._bot):
                return self._outage(error)
            case _:
                self._count("failed")
                return Failed(str(error))

    def _outage(self, error: Exception) -> Exception:
        """Throttle all sends: Telegram accepted nothing, and the next message would fail, too."""
        self._count("unreachable")
        _LOG.warning(
            "bot %s: Telegram is not available (%s): its sends are delayed by %g s",
            self._bot.slug,
            error,
            _OUTAGE_WAIT_S,
        )
        return Throttled(_OUTAGE_WAIT_S)

    def _count(self, result: str) -> None:
        self._counters.count("gateway_sends_total", bot=self._bot.slug, result=result)
