"""The event loop on which jobs run, as other threads see it."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable


class JobLoop:
    """Lets any thread call something on the job loop, in the worker's own context."""

    __slots__ = ("_context", "_thread", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.get_ident()
        self._context = contextvars.copy_context()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.get_ident() == self._thread

    def post(self, what: Callable[..., object], *args: object) -> None:
        """Call it there soon; from any thread."""
        # A loop that is already closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what, *args, context=self._context)
