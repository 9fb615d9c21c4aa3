"""The event loop on which jobs run, for callers on other threads."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable


class JobLoop:
    """Calls functions on the job loop from any thread, in the worker's own context."""

    __slots__ = ("_context", "_thread", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.get_ident()
        self._context = contextvars.copy_context()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.get_ident() == self._thread

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Call ``callback(*args)`` there soon. May be called from any thread."""
        # A closed loop runs nothing any more.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback, *args, context=self._context)
