"""Runs blocking work off the event loop, on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def run_blocking(work: Callable[[], T]) -> T:
    """Return the result of ``work``. A daemon thread, so that a stuck disk does not block exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def resolve(value: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value: T | None = None
        caught: Exception | None = None
        try:
            value = work()
        except Exception as error:
            caught = error
        # RuntimeError: the loop is closed, so no caller waits on it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve, value, caught)

    threading.Thread(target=run, name="forge-sqlite-blocking", daemon=True).start()
    return await future
