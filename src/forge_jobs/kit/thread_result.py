"""``ThreadResult``: a future between threads that stays correct when a signal handler raises in
the waiting thread.

``concurrent.futures.Future`` does not: Python code acquires and releases its condition, and an
exception raised there by a signal handler leaves the condition's lock held. The thread that sets
the result then waits for ever. Here each step that two threads share is a single call into C, which
a signal handler cannot interrupt halfway.
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
    """A result that one thread sets once, and any number of threads and event loops wait for.

    A waiting caller may be interrupted at any point: the other thread still finishes its call, and
    the result is dropped.
    """

    __slots__ = ("_cancel", "_error", "_value", "_waiters", "done")

    def __init__(self, cancel: Callable[[], object] | None = None) -> None:
        self.done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiters: deque[Callable[[], object]] = deque()
        self._cancel = cancel

    # ---------------------------------------------------------------- the thread that runs the call

    def set_result(self, value: T) -> None:
        """Record that the call succeeded."""
        self._value = value
        self.done = True
        self._wake_waiters()

    def set_exception(self, error: BaseException) -> None:
        """Record that the call failed or was cancelled."""
        self._error = CancelledError() if isinstance(error, asyncio.CancelledError) else error
        self.done = True
        self._wake_waiters()

    # ---------------------------------------------------------------- the waiting threads and tasks

    @property
    def failed(self) -> bool:
        """Whether the call has ended with an error."""
        return self.done and self._error is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the result is set; False after ``timeout_s``."""
        if self.done:
            return True
        box: SimpleQueue[None] = SimpleQueue()
        self._add_waiter(partial(box.put, None))
        with suppress(Empty):
            box.get(timeout=timeout_s)
        return self.done

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result and return it, or raise the call's error. TimeoutError after
        ``timeout_s``."""
        if not self.wait(timeout_s):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    async def aresult(self) -> T:
        """``result`` for coroutines. Cancelling the caller ends the wait, not the call."""
        if not self.done:
            loop = asyncio.get_running_loop()
            arrival: asyncio.Future[None] = loop.create_future()
            self._add_waiter(lambda: loop.call_soon_threadsafe(_set, arrival))
            await arrival
        return self.result()

    def cancel(self) -> None:
        """Request the cancellation of the call. No effect once it has ended."""
        if self._cancel is not None and not self.done:
            # RuntimeError: the loop is closed and has cancelled the call.
            with suppress(RuntimeError):
                self._cancel()

    def _add_waiter(self, waiter: Callable[[], object]) -> None:
        self._waiters.append(waiter)
        # The other thread sets `done` before it wakes the waiters, and this one appends before it
        # reads `done`: at least one of the two sees the other.
        if self.done:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        with suppress(IndexError):
            while True:
                waiter = self._waiters.popleft()
                # RuntimeError: the waiter's loop is closed.
                with suppress(RuntimeError):
                    waiter()


def _set(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)
