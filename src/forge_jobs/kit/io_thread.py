"""The one I/O thread of a process: ``forge-io``, with an event loop of its own.

It carries the lease, the wake-up subscription, the control poll and calls from synchronous code, so
that a job that blocks its own loop neither looks dead nor blocks a caller.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from .thread_result import ThreadResult
from .threads import start_thread

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class IoPort(Protocol):
    """Where background input and output runs; a simulation runs it on its one loop instead."""

    def spawn(self, work: Work[T]) -> "Future[T] | asyncio.Task[T]":
        """Start the coroutine made by ``work`` over there."""
        ...


class IoThread:
    """A daemon thread with an event loop, started by its first use.

    After a fork the child gets a new thread; the old loop belongs to the parent and is left alone.
    """

    def __init__(self, name: str = "forge-io") -> None:
        self._name = name
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    def spawn(self, work: Work[T]) -> "Future[T]":
        """Start the coroutine on the I/O loop; safe from any thread.

        Raises RuntimeError once the interpreter is shutting down: a daemon thread would never
        answer, and waiting for it would hang the exit.
        """
        if sys.is_finalizing():
            raise RuntimeError("the interpreter is shutting down")
        loop = self._running_loop()
        return asyncio.run_coroutine_threadsafe(work(), loop)

    def start(self, work: Work[T]) -> ThreadResult[T]:
        """``spawn`` for synchronous callers: a signal that interrupts them harms nobody, and the
        coroutine goes on to its end."""
        if sys.is_finalizing():
            raise RuntimeError("the interpreter is shutting down")
        loop = self._running_loop()
        call = _PendingCall(loop, work)
        # Before it is sent: a loop that ends without having begun it finds it here.
        _PENDING_CALLS.add(call)
        try:
            loop.call_soon_threadsafe(call.begin)
        except RuntimeError:
            _PENDING_CALLS.discard(call)
            raise
        return call.answer

    def call(self, work: Work[T], timeout_s: float | None = None) -> T:
        """Run the coroutine over there and wait for its answer here.

        Raises TimeoutError after ``timeout_s``; the coroutine is cancelled then.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a synchronous call on the I/O thread would wait for itself")
        answer = self.start(work)
        if not answer.wait(timeout_s):
            answer.cancel()
            raise TimeoutError
        return answer.result()

    def close(self) -> None:
        """Cancel what runs there and end the thread. Closing twice is fine."""
        with self._guard:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._pid != os.getpid() or not thread.is_alive():
            return
        # It may have ended by itself meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stop, loop)
        if threading.current_thread() is not thread:
            thread.join()

    def stop_from_loop(self) -> None:
        """On the I/O thread itself: end it after this step, whoever may have asked for that."""
        self._stop(asyncio.get_running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        while (loop := self._loop) is None or self._pid != os.getpid():
            # At exit Python starts no more threads and raises RuntimeError here.
            started: SimpleQueue[BaseException | None] = SimpleQueue()
            start_thread(self._serve, started, name=self._name)
            error = started.get()
            if error is not None:
                raise error
        return loop

    def _serve(self, started: "SimpleQueue[BaseException | None]") -> None:
        """The thread: it makes its loop itself, because whoever starts it may be interrupted."""
        try:
            with self._guard:
                if self._loop is not None and self._pid == os.getpid():
                    # Another one was quicker.
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

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        # Once: a second stop would disturb the cancelling of what is left.
        if self._stopped is not loop:
            self._stopped = loop
            loop.stop()


class _PendingCall(Generic[T]):
    """A coroutine on its way: ``begin`` runs on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> None:
        self.loop = loop
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self.answer: ThreadResult[T] = ThreadResult(self._cancel)

    def begin(self) -> None:
        self._task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            self.answer.give(await self._work())
        except BaseException as error:
            # The caller's, if it still waits. Nobody reads the end of this task.
            self.answer.fail(error)
        finally:
            _PENDING_CALLS.discard(self)

    def _cancel(self) -> None:
        self.loop.call_soon_threadsafe(self._cancel_there)

    def _cancel_there(self) -> None:
        if self._task is not None:
            self._task.cancel()


# Also what keeps their tasks alive: a loop knows its own by weak references only.
_PENDING_CALLS: "set[_PendingCall[Any]]" = set()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        for call in list(_PENDING_CALLS):
            if call.loop is loop:
                _PENDING_CALLS.discard(call)
                call.answer.fail(asyncio.CancelledError())
