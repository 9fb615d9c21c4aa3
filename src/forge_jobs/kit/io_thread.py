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
from typing import Any, Protocol, TypeVar

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

    def call(self, work: Work[T], timeout_s: float | None = None) -> T:
        """Run the coroutine over there and wait for its answer here.

        Raises TimeoutError after ``timeout_s``; the coroutine is cancelled then.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a synchronous call on the I/O thread would wait for itself")
        future = self.spawn(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what runs there and end the thread. Closing twice is fine."""
        with self._guard:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._pid != os.getpid() or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        if threading.current_thread() is not thread:
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None or self._pid != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # At exit Python starts no more threads; a loop without one would never answer.
                    loop.close()
                    raise
                self._pid, self._loop, self._thread = os.getpid(), loop, thread
            return self._loop


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
