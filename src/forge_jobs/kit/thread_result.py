"""The answer of another thread, for a caller whom a signal may interrupt while it waits.

``concurrent.futures.Future`` is not safe there: its condition is entered and left by Python code,
and an exception that a signal handler raises inside that code leaves the condition's lock held. The
thread that brings the answer then waits for ever. Here each step that two threads share is a single
call into C, which a signal handler cannot split.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class ThreadResult(Generic[T]):
    """Given once, by one thread; awaited by any number of threads and loops.

    A caller that is interrupted just goes away: the other thread finishes, and nobody collects.
    """

    __slots__ = ("_cancel", "_error", "_value", "_waiters", "done")

    def __init__(self, cancel: Callable[[], object] | None = None) -> None:
        self.done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiters: deque[Callable[[], object]] = deque()
        self._cancel = cancel

    # ---------------------------------------------------------------- the thread that answers

    def give(self, value: T) -> None:
        """The call has succeeded."""
        self._value = value
        self.done = True
        self._tell()

    def fail(self, error: BaseException) -> None:
        """The call has failed, or was cancelled."""
        self._error = CancelledError() if isinstance(error, asyncio.CancelledError) else error
        self.done = True
        self._tell()

    # ---------------------------------------------------------------- those who wait

    @property
    def failed(self) -> bool:
        """Whether the call has ended with an error."""
        return self.done and self._error is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the answer is there; False when it was not in time."""
        if self.done:
            return True
        box: SimpleQueue[None] = SimpleQueue()
        self._listen(partial(box.put, None))
        with suppress(Empty):
            box.get(timeout=timeout_s)
        return self.done

    def result(self, timeout_s: float | None = None) -> T:
        """The answer; its error is raised. TimeoutError when it was not there in time."""
        if not self.wait(timeout_s):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    async def aresult(self) -> T:
        """``result`` for coroutines; giving up ends the wait, not the call."""
        if not self.done:
            loop = asyncio.get_running_loop()
            there: asyncio.Future[None] = loop.create_future()
            self._listen(lambda: loop.call_soon_threadsafe(_set, there))
            await there
        return self.result()

    def cancel(self) -> None:
        """Have the call cancelled; no effect once it has ended."""
        if self._cancel is not None and not self.done:
            # A loop that is closed has cancelled it before.
            with suppress(RuntimeError):
                self._cancel()

    def _listen(self, waiter: Callable[[], object]) -> None:
        self._waiters.append(waiter)
        # Whoever answers says so first and looks for waiters then: one of the two sees the other.
        if self.done:
            self._tell()

    def _tell(self) -> None:
        with suppress(IndexError):
            while True:
                waiter = self._waiters.popleft()
                # A loop that is closed has nobody left to wait.
                with suppress(RuntimeError):
                    waiter()


def _set(there: "asyncio.Future[None]") -> None:
    if not there.done():
        there.set_result(None)
