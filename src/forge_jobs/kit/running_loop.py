"""Tells synchronous code whether it would block an event loop."""

import asyncio


def has_running_loop() -> bool:
    """Whether an event loop runs in this thread. Ask this instead of starting a loop in an
    ``except RuntimeError:``: every error in there would have the RuntimeError as its context."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
