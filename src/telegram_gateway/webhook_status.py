"""What Telegram says about the webhooks, once a minute: the first thing operators look at."""

import logging
from collections.abc import Sequence
from typing import Any, Final, cast

from .bot_api import ApiError, Unreachable
from .config import Bot
from .gateway import Gateway

_LOG: Final = logging.getLogger("telegram_gateway.webhook_status")
_EVERY_S: Final = 60.0


async def poll_webhooks(gateway: Gateway, polled: Sequence[Bot]) -> None:
    """Show what waits at Telegram and why, for all bots but the polled ones, until cancelled."""
    told: dict[str, float] = {}
    while True:
        await gateway.clock.sleep(_EVERY_S)
        for bot in gateway.bots:
            if bot not in polled:
                await read_webhook(gateway, bot, told)


async def read_webhook(gateway: Gateway, bot: Bot, told: dict[str, float]) -> None:
    """One look; ``told`` keeps which errors were logged already."""
    try:
        answer = await gateway.api.call(bot, "getWebhookInfo", {})
    except (ApiError, Unreachable) as error:
        _LOG.info("bot %s: %s", bot.slug, error)
        return
    info = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    waiting, failed_at = info.get("pending_update_count"), info.get("last_error_date")
    if isinstance(waiting, int):
        gateway.counters.show("gateway_webhook_pending_updates", waiting, bot=bot.slug)
    if isinstance(failed_at, int) and told.get(bot.slug) != failed_at:
        told[bot.slug] = failed_at
        name = "gateway_webhook_last_error_timestamp_seconds"
        gateway.counters.show(name, failed_at, bot=bot.slug)
        reason = gateway.mask(str(info.get("last_error_message")))
        _LOG.warning("bot %s: Telegram could not deliver: %s", bot.slug, reason)
