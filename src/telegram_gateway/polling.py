"""Polling, for machines that Telegram cannot reach: the same door, another way in.

The offset rises only after the updates below it are stored, so a crash repeats a batch and the
dedupe key absorbs it.
"""

import logging
from typing import Any, Final, cast

import msgspec

from .bot_api import ApiError, Unreachable
from .config import Bot
from .gateway import Gateway

_LOG: Final = logging.getLogger("telegram_gateway.polling")
_WAIT_S: Final = 50
_MIN_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0


async def poll(gateway: Gateway, bot: Bot) -> None:
    """Fetch updates until cancelled. The webhook is removed first; what waits there is kept."""
    offset, pause_s = 0, _MIN_PAUSE_S
    deleted = False
    while True:
        try:
            if not deleted:
                await gateway.api.call(bot, "deleteWebhook", {"drop_pending_updates": False})
                deleted = True
            batch = await _batch(gateway, bot, offset)
            pause_s = _MIN_PAUSE_S
        except ApiError as error:
            if error.code == 409:
                _LOG.warning(
                    "bot %s: somebody else fetches its updates or set a webhook: stop the other "
                    "process; next try in %g s",
                    bot.slug,
                    pause_s,
                )
                deleted = False
            else:
                _LOG.warning("bot %s: %s", bot.slug, error)
            batch = None
        except Unreachable as error:
            _LOG.warning("bot %s: %s", bot.slug, error)
            batch = None
        if batch is not None:
            stored = await _taken(gateway, bot, batch, offset)
            if stored is not None:
                offset = stored
                continue
        await gateway.clock.sleep(pause_s)
        pause_s = min(pause_s * 2, _MAX_PAUSE_S)


async def _batch(gateway: Gateway, bot: Bot, offset: int) -> list[Any]:
    asked: dict[str, Any] = {
        "timeout": _WAIT_S,
        "limit": 100,
        "allowed_updates": list(bot.allowed_updates),
    }
    if offset:
        asked["offset"] = offset
    found = await gateway.api.call(bot, "getUpdates", asked, wait_s=_WAIT_S)
    return cast("list[Any]", found) if isinstance(found, list) else []


async def _taken(gateway: Gateway, bot: Bot, batch: list[Any], offset: int) -> int | None:
    """The next offset, or None when an update could not be stored."""
    for update in batch:
        verdict = await gateway.receiver.take(
            gateway.runtimes[bot.slug], msgspec.json.encode(update)
        )
        if not verdict.taken:
            return None
        number = (
            cast("dict[str, Any]", update).get("update_id") if isinstance(update, dict) else None
        )
        if isinstance(number, int):
            offset = max(offset, number + 1)
    return offset
