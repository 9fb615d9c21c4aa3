"""Long polling with getUpdates, for machines that Telegram cannot reach.

Updates go through the same UpdateReceiver as webhooks. The offset is raised only after the updates
below it are stored, so a crash repeats a batch, and the dedupe key makes that idempotent.
"""

import logging
from typing import Any, Final, cast

import msgspec

from .bot_api import ApiError, NoResponse
from .config import Bot
from .gateway import Gateway

_LOG: Final = logging.getLogger("telegram_gateway.polling")
_LONG_POLL_S: Final = 50
_MIN_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0


async def poll(gateway: Gateway, bot: Bot) -> None:
    """Fetch updates until cancelled. The webhook is removed first; its pending updates are kept."""
    offset, pause_s = 0, _MIN_PAUSE_S
    deleted = False
    while True:
        try:
            if not deleted:
                await gateway.api.call(bot, "deleteWebhook", {"drop_pending_updates": False})
                deleted = True
            batch = await _fetch_batch(gateway, bot, offset)
            pause_s = _MIN_PAUSE_S
        except ApiError as error:
            if error.code == 409:
                _LOG.warning(
                    "bot %s: another process fetches its updates or set a webhook: stop that "
                    "process; next attempt in %g s",
                    bot.slug,
                    pause_s,
                )
                deleted = False
            else:
                _LOG.warning("bot %s: %s", bot.slug, error)
            batch = None
        except NoResponse as error:
            _LOG.warning("bot %s: %s", bot.slug, error)
            batch = None
        if batch is not None:
            stored = await _receive_batch(gateway, bot, batch, offset)
            if stored is not None:
                offset = stored
                continue
        await gateway.clock.sleep(pause_s)
        pause_s = min(pause_s * 2, _MAX_PAUSE_S)


async def _fetch_batch(gateway: Gateway, bot: Bot, offset: int) -> list[Any]:
    parameters: dict[str, Any] = {
        "timeout": _LONG_POLL_S,
        "limit": 100,
        "allowed_updates": list(bot.allowed_updates),
    }
    if offset:
        parameters["offset"] = offset
    result = await gateway.api.call(bot, "getUpdates", parameters, wait_s=_LONG_POLL_S)
    return cast("list[Any]", result) if isinstance(result, list) else []


async def _receive_batch(gateway: Gateway, bot: Bot, batch: list[Any], offset: int) -> int | None:
    """Receive every update of a batch. The next offset, or None if one could not be stored."""
    for update in batch:
        status = await gateway.receiver.receive(
            gateway.runtimes[bot.slug], msgspec.json.encode(update)
        )
        if not status.acknowledged:
            return None
        number = (
            cast("dict[str, Any]", update).get("update_id") if isinstance(update, dict) else None
        )
        if isinstance(number, int):
            offset = max(offset, number + 1)
    return offset
