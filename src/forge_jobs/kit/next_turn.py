"""Gives other callbacks of an event loop their turn."""

import types
from collections.abc import Generator


@types.coroutine
def next_turn() -> Generator[None]:
    """Continue in the next turn of the event loop: ``asyncio.sleep(0)`` with one frame less."""
    yield
