"""SIGTERM and SIGINT for a worker inside the user's own process."""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from forge_jobs.core.errors import Refused

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class WorkerSignals:
    """Handles both signals between ``install`` and ``restore``.

    The first one cancels the task that entered the worker's block, which drains the worker on its
    way out; the second one calls ``end_grace``. Handlers that were there before are put back.
    Python delivers signals to the main thread only, so only a worker on its event loop can have
    them: Refused elsewhere.
    """

    def __init__(self, end_grace: Callable[[], None]) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise Refused(
                "signals=True needs the main thread, since Python delivers signals there only: "
                "start the worker on the main thread, or leave signals out and end its "
                "`async with` block by yourself"
            )
        self._end_grace = end_grace
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._previous: dict[int, Any] = {}
        self._cancels = 0
        self.received: signal.Signals | None = None
        self.draining = False

    def install(self) -> None:
        """Take both signals over."""
        for number in SIGNALS:
            self._previous[number] = signal.getsignal(number)
            signal.signal(number, self._on_signal)

    def restore(self) -> None:
        """Put the previous handlers back."""
        while self._previous:
            number, handler = self._previous.popitem()
            # None: the handler was not set by Python code and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def swallow_cancel(self) -> bool:
        """Whether this task was cancelled by the first signal; it goes on after the block then."""
        if not self._cancels or self._task is None:
            return False
        self._cancels = 0
        return self._task.uncancel() == 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Runs on the main thread between two bytecodes: the loop does the rest.
        self._loop.call_soon_threadsafe(self._handle, number)

    def _handle(self, number: int) -> None:
        if self.received is not None:
            self._end_grace()
            return
        self.received = signal.Signals(number)
        if not self.draining and self._task is not None:
            self._cancels += 1
            self._task.cancel()
