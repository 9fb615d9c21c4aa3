"""The I/O thread of a process (``forge-io``), which runs an event loop of its own.

The heartbeat, the LISTEN/NOTIFY subscription, the poll of the control version and calls from
synchronous code run there. A handler that blocks the main event loop therefore neither loses the
process lease nor blocks these callers.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

from .thread_result import ThreadResult
from .threads import start_thread

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class IoPort(Protocol):
    """Where background I/O runs: a thread, or the only event loop of a simulation."""

    def spawn(self, work: Work[T]) -> "Future[T] | asyncio.Task[T]":
        """Start the coroutine that ``work`` returns on the I/O loop."""
        ...


class IoThread:
    """A daemon thread with an event loop. The first call starts it.

    After a fork the child process starts a new thread. It does not touch the old loop, which
    belongs to the parent process.
    """

    def __init__(self, name: str = "forge-io") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.AbstractEventLoop | None = None
        self._ending: threading.Thread | None = None
        self._pid = os.getpid()

    def spawn(self, work: Work[T]) -> "Future[T]":
        """Start the coroutine on the I/O loop. Thread-safe.

        Raises RuntimeError while the interpreter shuts down: a daemon thread would never return a
        result then, and waiting for it would hang the exit.
        """
        while True:
            if sys.is_finalizing():
                raise RuntimeError("the interpreter is shutting down")
            loop = self._running_loop()
            call = _SpawnedCall(self._unless_stopped(loop, work), loop)
            try:
                return call.send()
            except RuntimeError:
                if not loop.is_closed():
                    raise
                # The thread was stopped between these lines: send the call to the next one.

    def start(self, work: Work[T]) -> ThreadResult[T]:
        """``spawn`` for synchronous callers. A signal handler that raises in the caller leaves no
        lock held, and the coroutine still runs to its end."""
        while True:
            if sys.is_finalizing():
                raise RuntimeError("the interpreter is shutting down")
            loop = self._running_loop()
            call = _PendingCall(loop, lambda loop=loop: self._unless_stopped(loop, work))
            # Added before it is sent: a loop that stops without starting the call cancels it from
            # here.
            _PENDING_CALLS.add(call)
            try:
                loop.call_soon_threadsafe(call.begin)
            except RuntimeError:
                _PENDING_CALLS.discard(call)
                if not loop.is_closed():
                    raise
                # The thread was stopped between these lines: send the call to the next one.
                continue
            return call.result

    def call(self, work: Work[T], timeout_s: float | None = None) -> T:
        """Run the coroutine on the I/O loop and block until it returns.

        Raises TimeoutError after ``timeout_s`` and cancels the coroutine.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a synchronous call on the I/O thread would wait for itself")
        pending = self.start(work)
        if not pending.wait(timeout_s):
            pending.cancel()
            raise TimeoutError
        return pending.result()

    def close(self) -> None:
        """Cancel the running coroutines and stop the thread. Idempotent."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._pid != os.getpid() or not thread.is_alive():
            return
        # RuntimeError: the loop was closed meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stop, loop)
        if threading.current_thread() is not thread:
            thread.join()

    def stop_from_loop(self) -> None:
        """Stop the thread after the current step of its loop. Call it on the I/O thread. The next
        call starts another one."""
        self._stop(asyncio.get_running_loop())

    def join_stopped(self) -> None:
        """Wait for the end of the thread that was stopped last, not for one started since."""
        ending = self._ending
        if ending is not None and ending is not threading.current_thread():
            ending.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        while not self._is_usable(loop := self._loop):
            # At interpreter exit Python starts no more threads and raises RuntimeError here.
            started: SimpleQueue[BaseException | None] = SimpleQueue()
            start_thread(self._serve, started, name=self._name)
            error = started.get()
            if error is not None:
                raise error
        return loop

    def _is_usable(
        self, loop: asyncio.AbstractEventLoop | None
    ) -> TypeGuard[asyncio.AbstractEventLoop]:
        return loop is not None and loop is not self._stopped and self._pid == os.getpid()

    def _serve(self, started: "SimpleQueue[BaseException | None]") -> None:
        """The thread's target. The thread creates its loop itself, because a signal may interrupt
        the caller that starts it."""
        try:
            with self._lock:
                if self._is_usable(self._loop):
                    # Another caller has started a thread first.
                    started.put(None)
                    return
                loop = asyncio.new_event_loop()
                self._pid, self._loop = os.getpid(), loop
                self._thread = threading.current_thread()
        except BaseException as error:
            started.put(error)
            return
        started.put(None)
        _serve(loop)

    async def _unless_stopped(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
        """Run the call, unless the loop was stopped before it began: nothing may be opened on a
        loop that closes what it has."""
        if self._stopped is loop:
            raise asyncio.CancelledError
        return await work()

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        # Only once: a second stop would interrupt the cancellation of the remaining tasks.
        if self._stopped is not loop:
            self._stopped, self._ending = loop, threading.current_thread()
            loop.stop()


class _PendingCall(Generic[T]):
    """A call to the I/O loop whose result is not set yet. ``begin`` runs on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> None:
        self.loop = loop
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self.result: ThreadResult[T] = ThreadResult(self._cancel)

    def begin(self) -> None:
        self._task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            self.result.set_result(await self._work())
        except BaseException as error:
            # Re-raised in the caller if it still waits. Nothing reads the result of this task.
            self.result.set_exception(error)
        finally:
            _PENDING_CALLS.discard(self)

    def _cancel(self) -> None:
        self.loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _SpawnedCall(Generic[T]):
    """A coroutine on its way to the I/O loop."""

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._work = work
        self._future: Future[T] | None = None

    def send(self) -> "Future[T]":
        """Have the loop start it; RuntimeError if the loop is closed."""
        _SPAWNED_CALLS.add(self)
        try:
            self._future = asyncio.run_coroutine_threadsafe(self._work, self.loop)
        except BaseException:
            _SPAWNED_CALLS.discard(self)
            self._work.close()
            raise
        self._future.add_done_callback(lambda _: _SPAWNED_CALLS.discard(self))
        if self.loop.is_closed():
            # The loop may have ended without it, before the future was known.
            self.drop()
        return self._future

    def drop(self) -> None:
        """Cancel it after its loop was closed, if the loop never started it."""
        _SPAWNED_CALLS.discard(self)
        if self._future is not None and not self._future.done():
            self._work.close()
            self._future.cancel()


# Strong references to the calls and their tasks: an event loop holds its tasks weakly.
_PENDING_CALLS: "set[_PendingCall[Any]]" = set()
# Those that a loop might close without starting.
_SPAWNED_CALLS: "set[_SpawnedCall[Any]]" = set()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        _finish_tasks(loop)
        loop.close()
        for call in list(_PENDING_CALLS):
            if call.loop is loop:
                _PENDING_CALLS.discard(call)
                call.result.set_exception(asyncio.CancelledError())
        for spawned in list(_SPAWNED_CALLS):
            if spawned.loop is loop:
                spawned.drop()


def _finish_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks and close all asynchronous generators, also those that a task starts while
    it ends: one that is left keeps its connection and whatever waits for it."""
    while True:
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        if not asyncio.all_tasks(loop):
            return
