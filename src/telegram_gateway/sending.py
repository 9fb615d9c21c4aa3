"""One outgoing call: flood limits before it, and what Telegram's answer means for the job."""

import logging
from typing import Any, Final

from forge_jobs import Clock, Dead, Failed, Snooze, Throttled

from .bot_api import ApiError, BotApi, Unreachable
from .calls import Call
from .config import Bot
from .flood import Flood
from .meters import Meters

_LOG: Final = logging.getLogger("telegram_gateway.sending")
_BEYOND_S: Final = 0.1
_REVOKED_WAIT_S: Final = 300.0
_PATIENCE_S: Final = 10.0


class Outgoing:
    """Sends for one bot."""

    def __init__(self, bot: Bot, api: BotApi, clock: Clock, meters: Meters) -> None:
        self._bot = bot
        self._api = api
        self._meters = meters
        self._clock = clock
        self._flood = Flood(clock)
        self._moved: dict[str, int] = {}

    async def send(self, call: Call) -> Any:
        """Make the call now, or raise when and whether to try again.

        429 stops all sends of the bot, since Telegram does not say whom it means; a revoked token
        does, too, and both cost no attempt.
        """
        wait_s = self._flood.take(call.chat_id)
        if wait_s > 0:
            raise Snooze(max(wait_s, 0.001))
        try:
            result = await self._called(call)
        except Unreachable as error:
            self._count("unreachable")
            raise Failed(str(error)) from None
        except ApiError as error:
            raise self._meaning(error) from None
        self._count("sent")
        return result

    async def send_now(self, call: Call) -> Any:
        """``send`` for the door, which has no queue to wait in: short waits are waited out here."""
        left_s = _PATIENCE_S
        while True:
            try:
                return await self.send(call)
            except Snooze as later:
                left_s -= later.delay_s
                if left_s < 0:
                    raise
                await self._clock.sleep(later.delay_s)

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

    def _meaning(self, error: ApiError) -> Exception:
        match error.code:
            case 429:
                wait_s = error.retry_after_s or 1.0
                self._count("flood")
                self._meters.count("gateway_flood_wait_seconds_total", wait_s, bot=self._bot.slug)
                return Throttled(wait_s + _BEYOND_S)
            case 401:
                self._count("unauthorised")
                _LOG.error("bot %s: Telegram refuses its token; sends wait", self._bot.slug)
                return Throttled(_REVOKED_WAIT_S)
            case 400 | 403 | 404:
                self._count("refused")
                return Dead(str(error))
            case _:
                self._count("failed")
                return Failed(str(error))

    def _count(self, result: str) -> None:
        self._meters.count("gateway_sends_total", bot=self._bot.slug, result=result)
