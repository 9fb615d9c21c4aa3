"""A command's access to a store: resolves the address, opens the store, runs the work, closes."""

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.selection import Filter
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.ops.query_line import joined, query_filter

if TYPE_CHECKING:
    from datetime import datetime

    from forge_jobs.app import Forge
    from forge_jobs.core.job_query import JobQuery
    from forge_jobs.ops.actions import Store

T = TypeVar("T")


def with_store(url: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Run ``work`` on the opened store. Raises NotFound if there is no database."""

    async def step(forge: "Forge") -> T:
        if (await forge.store.maintenance.schema_status()).current is None:
            address = redact.url(forge.url)
            raise NotFound(
                f"there is no database at {address}: check --url or FORGE_URL, "
                "or create it with `forge db create`"
            )
        return await work(await forge.aready())

    return with_forge(url, step)


def with_forge(url: str | None, work: "Callable[[Forge], Awaitable[T]]") -> T:
    """Run ``work`` with a Forge of that address and close it afterwards. Opens no store itself."""
    from forge_jobs.app import Forge

    async def session() -> T:
        forge = Forge(url)
        try:
            return await work(forge)
        finally:
            await forge.aclose()

    return asyncio.run(session())


async def with_store_time(store: "Store", query: Awaitable[T]) -> "tuple[T, datetime]":
    """The result of a query and the store time. Ages are relative to the store time, because this
    machine's clock may be wrong."""
    return await query, to_datetime(await store.now())


async def with_query(store: "Store", chosen: Filter, query: "JobQuery | None") -> Filter:
    """The filter of the options, in store time, and of a query line."""
    wanted = await by_store_time(store, chosen)
    return wanted if query is None else joined(wanted, await query_filter(store, query))


async def by_store_time(store: "Store", chosen: Filter) -> Filter:
    """The filter with its ages relative to the store time instead of this machine's time."""
    if chosen.enqueued_from is None and chosen.enqueued_until is None:
        return chosen
    skew = await store.now() - SYSTEM_CLOCK.now()
    return replace(
        chosen,
        enqueued_from=None if chosen.enqueued_from is None else chosen.enqueued_from + skew,
        enqueued_until=None if chosen.enqueued_until is None else chosen.enqueued_until + skew,
    )


def actor() -> str:
    """The actor for the audit: the operating system's user."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"cli:{name}"
