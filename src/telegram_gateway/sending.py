"""One outgoing call: flood limits before it, and what Telegram's answer means for the job."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from forge_jobs import Clock, Dead, Failed, Snooze, Throttled

from .bot_api import ApiError, BotApi, NotReached, Unreachable
from .calls import Call
from .config import Bot
from .flood import Allowance, allowances, whole_bot
from .metrics import GatewayMetrics
from .storage import CachedGatewayStore, GatewayStore

Take: TypeAlias = Callable[[Sequence[Allowance], int], Awaitable[int]]

_LOG: Final = logging.getLogger("telegram_gateway.sending")
_SECOND: Final = 1_000_000
_BEYOND_S: Final = 0.1
_REFUSED_WAIT_S: Final = 300.0
_OUTAGE_WAIT_S: Final = 10.0
_PATIENCE_S: Final = 10.0


class Outgoing:
    """Sends for one bot."""

    def __init__(
        self,
        bot: Bot,
        api: BotApi,
        storage: GatewayStore,
        at_the_door: CachedGatewayStore,
        clock: Clock,
        counters: GatewayMetrics,
    ) -> None:
        self._bot = bot
        self._api = api
        self._storage = storage
        self._at_the_door = at_the_door
        self._counters = counters
        self._clock = clock
        self._moved: dict[str, int] = {}
        self._held_until = 0.0

    async def send(self, call: Call, permit: Callable[[], Awaitable[None]]) -> Any:
        """Make the call now, or raise when and whether to try again.

        ``permit`` takes from the limit of the whole bot, or raises, too. 429 stops all sends of the
        bot, since Telegram does not say whom it means; a refused token does, too, and so does a
        Telegram that cannot be reached or answers nobody. None of these costs an attempt.
        """
        return await self._sent(call, self._storage.take, permit)

    async def _sent(self, call: Call, take: Take, permit: Callable[[], Awaitable[None]]) -> Any:
        wait_s = await self._flood_wait_s(call, take)
        if wait_s > 0:
            raise Snooze(wait_s)
        await permit()
        self._heed()
        try:
            result = await self._called(call)
        except NotReached as error:
            raise self._outage(error) from None
        except Unreachable as error:
            self._count("unreachable")
            raise Failed(str(error)) from None
        except ApiError as error:
            raise await self._meaning(error) from None
        self._count("sent")
        return result

    async def send_now(self, call: Call) -> Any:
        """``send`` for the door, which has no queue to wait in: short waits are waited out here.
        It needs no store: without one the limits are those of this process alone."""
        left_s = _PATIENCE_S
        while True:
            try:
                return await self._sent(call, self._at_the_door.take, self._permit_at_the_door)
            except Snooze as later:
                left_s -= later.delay_s
                if left_s < 0:
                    raise
                await self._clock.sleep(later.delay_s)

    async def _permit_at_the_door(self) -> None:
        wait_us = await self._at_the_door.take([whole_bot(self._bot.id)], self._clock.now())
        if wait_us:
            raise Snooze(wait_us / _SECOND)

    def _heed(self) -> None:
        """Whoever was under way when Telegram said 429 would earn another one."""
        left_s = self._held_until - self._clock.mono()
        if left_s > 0:
            raise Throttled(left_s)

    async def _flood_wait_s(self, call: Call, take: Take) -> float:
        wanted = allowances(self._bot.id, call.chat_id)
        try:
            return await take(wanted, self._clock.now()) / _SECOND
        except Exception as error:
            # Sending too early earns a 429, which is honoured; not sending would help nobody.
            _LOG.warning("bot %s: flood limits: %s", self._bot.slug, type(error).__name__)
            return 0.0

    async def _called(self, call: Call) -> Any:
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

    async def _meaning(self, error: ApiError) -> Exception:
        match error.code:
            case 429:
                wait_s = error.retry_after_s or 1.0
                self._held_until = self._clock.mono() + wait_s + _BEYOND_S
                self._count("flood")
                self._counters.count("gateway_flood_wait_seconds_total", wait_s, bot=self._bot.slug)
                return Throttled(wait_s + _BEYOND_S)
            case 400 | 403:
                self._count("refused")
                return Dead(str(error))
            case 404 if await self._api.knows(self._bot):
                self._count("refused")
                return Dead(str(error))
            case 401 | 404:
                self._count("unauthorised")
                return Throttled(_REFUSED_WAIT_S)
            case code if code >= 500 and not await self._api.works(self._bot):
                return self._outage(error)
            case _:
                self._count("failed")
                return Failed(str(error))

    def _outage(self, error: Exception) -> Exception:
        """Nothing was accepted, and the next message would fare no better: all of them wait."""
        self._count("unreachable")
        _LOG.warning(
            "bot %s: Telegram is out of reach (%s): its sends wait %g s",
            self._bot.slug,
            error,
            _OUTAGE_WAIT_S,
        )
        return Throttled(_OUTAGE_WAIT_S)

    def _count(self, result: str) -> None:
        self._counters.count("gateway_sends_total", bot=self._bot.slug, result=result)
