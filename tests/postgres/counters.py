"""The server's statistics of what was read: waits until those of a session are published."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

# The first version in which a session can be made to publish its statistics.
_ON_DEMAND = 150_000
_AT_MOST_EVERY_S = 0.6


async def handed_over(ask: Callable[[str], Awaitable[Sequence[Any]]]) -> None:
    """Wait until all sessions see the statistics of the session behind ``ask``.

    Before Postgres 15 a session publishes at most twice a second, when it is idle, and a reader may
    see what is half a second old.
    """
    [(number,)] = await ask("SELECT current_setting('server_version_num')::integer")
    if number >= _ON_DEMAND:
        await ask("SELECT pg_stat_force_next_flush()")
        await ask("SELECT 1")
        return
    await asyncio.sleep(_AT_MOST_EVERY_S)
    await ask("SELECT 1")
    await asyncio.sleep(_AT_MOST_EVERY_S)
