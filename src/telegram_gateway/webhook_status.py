"""Reads getWebhookInfo once a minute and exports it as metrics and log lines."""

import logging
from collections.abc import Sequence
from typing import Any, Final, cast

from .bot_api import ApiError, NoResponse
from .config import Bot
from .gateway import Gateway

_LOG: Final = logging.getLogger("telegram_gateway.webhook_status")
_EVERY_S: Final = 60.0


async def poll_webhooks(gateway: Gateway, polled: Sequence[Bot]) -> None:
    """Export the webhook status of all bots but the polled ones, until cancelled."""
    logged: dict[str, float] = {}
    while True:
        await gateway.clock.sleep(_EVERY_S)
        for bot in gateway.bots:
            if bot not in polled:
                await read_webhook(gateway, bot, logged)


async def read_webhook(gateway: Gateway, bot: Bot, logged: dict[str, float]) -> None:
    """Read the status of one webhook. ``logged``: time of the last logged error, by bot."""
    try:
        answer = await gateway.api.call(bot, "getWebhookInfo", {})
    except (ApiError, NoResponse) as error:
        _LOG.info("bot %s: %s", bot.slug, error)
        return
    info = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    waiting, failed_at = info.get("pending_update_count"), info.get("last_error_date")
    if isinstance(waiting, int):
        gateway.counters.set_gauge("gateway_webhook_pending_updates", waiting, bot=bot.slug)
    if isinstance(failed_at, int) and logged.get(bot.slug) != failed_at:
        logged[bot.slug] = failed_at
        name = "gateway_webhook_last_error_timestamp_seconds"
        gateway.counters.set_gauge(name, failed_at, bot=bot.slug)
        reason = gateway.mask(str(info.get("last_error_message")))
        _LOG.warning("bot %s: Telegram could not deliver: %s", bot.slug, reason)
