"""One command's access to a store: resolve the address, open, work, close."""

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from forge_jobs.core.errors import NotFound
from forge_jobs.kit import redact

if TYPE_CHECKING:
    from forge_jobs.app import Forge
    from forge_jobs.ops.act import Store

T = TypeVar("T")


def on_store(url: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Run ``work`` on the opened store. NotFound when there is no database: looking makes none."""

    async def step(forge: "Forge") -> T:
        if (await forge.store.upkeep.schema_status()).current is None:
            place = redact.url(forge.url)
            raise NotFound(
                f"there is no database at {place}: check --url or FORGE_URL, "
                "or make it with `forge db create`"
            )
        return await work(await forge.aready())

    return with_forge(url, step)


def with_forge(url: str | None, work: "Callable[[Forge], Awaitable[T]]") -> T:
    """Run ``work`` with a Forge of that address and close it afterwards; opens nothing itself."""
    from forge_jobs.app import Forge

    async def session() -> T:
        forge = Forge(url)
        try:
            return await work(forge)
        finally:
            await forge.aclose()

    return asyncio.run(session())


def actor() -> str:
    """Who acts, for the audit: the operating system's user."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"cli:{name}"
