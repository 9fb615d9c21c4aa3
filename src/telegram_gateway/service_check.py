"""Finds services of http bots that cannot be called, at start and in ``telegram-gateway check``."""

import asyncio
from collections.abc import Sequence
from typing import Final

from .addresses import ForbiddenAddress, Resolve, checked_endpoint, resolve_host
from .config import Bot

_RESOLVE_S: Final = 5.0


async def check_services(bots: Sequence[Bot], resolve: Resolve = resolve_host) -> list[str]:
    """One warning for each service whose address is not allowed or not known here."""
    found = await asyncio.gather(*(_check_service(bot, resolve) for bot in bots))
    return [warning for warning in found if warning is not None]


async def _check_service(bot: Bot, resolve: Resolve) -> str | None:
    if bot.http is None:
        return None
    where = f"bots.{bot.slug}.http.url"
    try:
        async with asyncio.timeout(_RESOLVE_S):
            await checked_endpoint(bot.http.url, bot.http.networks, resolve)
    except ForbiddenAddress as error:
        return f"{where}: {error}; until then every update of the bot is dead at once"
    except OSError:  # TimeoutError is one, too
        hint = (
            "; an internal service also needs network: private" if bot.http.networks is None else ""
        )
        return f"{where}: the name cannot be resolved on this machine{hint}"
    return None
