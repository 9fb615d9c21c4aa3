"""Gives a process access to its store: opened on first use, from any thread, loop or forked child.

Closing ends the I/O thread and the connections; the next use opens the store again. Only an
interpreter that shuts down opens nothing any more, which is what ``Closed`` says.

Synchronous calls either write on the calling thread (``enqueue_sync``, ``try_enqueue_sync``) or run
a coroutine on the I/O thread and wait for it. Coroutines use the store on their own loop.
"""

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeAlias, TypeVar

from forge_jobs.core.errors import Closed, Refused
from forge_jobs.kit.io_thread import IoThread
from forge_jobs.kit.thread_result import ThreadResult
from forge_jobs.store.store import Store

T = TypeVar("T")


class _Change(ThreadResult["_Change | None"]):
    """An opening or closing; its result is the one that has to end first, if there is one."""


OnOpen: TypeAlias = Callable[[Store], Coroutine[Any, Any, None]]


class StoreAccess:
    """The store of a Forge, shared by its tasks, its job handles and its workers.

    Implements ``StorePort``. ``make_store`` is called once, on first use; ``migrate`` says whether
    opening may change the schema; ``on_open`` is awaited with the store each time it was opened. A
    failed opening is retried by the next call. A call that another thread's ``close`` overtakes
    raises Closed.
    """

    def __init__(
        self,
        make_store: Callable[[], Store],
        *,
        migrate: Callable[[], bool],
        on_open: OnOpen | None = None,
    ) -> None:
        self._make_store = make_store
        self._migrate = migrate
        self._on_open = on_open
        self._store: Store | None = None
        self._at_fork: list[Callable[[], None]] = []
        self._reset()
        _ALL.add(self)

    def _reset(self) -> None:
        self.io = IoThread()
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._opening: ThreadResult[Store] | None = None
        # The last opening or closing in line: one at a time, also those of interrupted callers.
        self._last_change: _Change | None = None
        self.opened: Store | None = None
        self.direct: Store | None = None

    @property
    def store(self) -> Store:
        """The store; not necessarily open."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = self._make_store()
        return self._store

    def ready(self) -> Store:
        """The open store, for synchronous code."""
        opened = self.opened
        if opened is not None and not sys.is_finalizing():
            return opened
        self._check_thread()
        while True:
            try:
                return self._open().result()
            except CancelledError:
                pass  # a close has just ended the I/O thread: open again, on a new one

    async def aready(self) -> Store:
        """The open store, for coroutines."""
        opened = self.opened
        if opened is not None:
            return opened
        while True:
            opening = self._open()
            try:
                return await opening.aresult()
            except CancelledError:
                pass  # as in ``ready``; a cancelled caller gets asyncio's own error

    def unopened(self) -> Store | None:
        """The store for a call inside the caller's transaction; None if it must be open."""
        if not self._migrate() or not self.store.capabilities.sync_calls:
            return None
        return self.store

    def run(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the I/O thread and wait for it here.

        An exception from a signal handler ends the wait; the coroutine goes on, so that its effect
        is never half done.
        """
        store = self.ready()
        self._check_thread()
        try:
            return self.start(lambda: work(store)).result()
        except CancelledError:
            raise Closed(_OVERTAKEN) from None

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> ThreadResult[T]:
        """Start a coroutine on the I/O thread, from synchronous code; or raise Closed."""
        try:
            return self.io.start(work)
        except RuntimeError as error:
            raise Closed(_ENDING) from error

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Start a coroutine on the I/O thread, or raise Closed."""
        try:
            return self.io.spawn(work)
        except RuntimeError as error:
            # The interpreter is shutting down, or Python refuses to start a thread.
            raise Closed(_ENDING) from error

    def close(self) -> None:
        """Close the store and end the I/O thread. Idempotent; the next use opens it again."""
        if sys.is_finalizing():
            return
        self._check_thread()
        self._forget_opened()
        if self._store is None:
            self.io.close()
            return
        # Cancelled: another close ended the thread meanwhile, perhaps before this one had its turn.
        with contextlib.suppress(CancelledError):
            try:
                self.io.start(self._close_on_io).result()
            except CancelledError:
                self.io.start(self._close_on_io).result()
        self.io.join_stopped()

    async def aclose(self) -> None:
        """``close`` for coroutines; does not block the event loop."""
        self._forget_opened()
        if self._store is None:
            await asyncio.to_thread(self.io.close)
            return
        with contextlib.suppress(CancelledError):
            try:
                await self.io.start(self._close_on_io).aresult()
            except CancelledError:
                await self.io.start(self._close_on_io).aresult()
        await asyncio.to_thread(self.io.join_stopped)

    def close_at_exit(self) -> None:
        """At exit: close the store; a later call opens it again if it still can."""
        with self._lock:
            opening = self._opening
            self.opened = self.direct = self._opening = None
        if opening is not None and opening.done and not opening.failed:
            self.io.call(opening.result().close, _AT_EXIT_S)

    def _forget_opened(self) -> None:
        with self._lock:
            self.opened = self.direct = self._opening = None

    async def _close_on_io(self) -> None:
        """Close the store and end this thread, whether or not the caller still waits."""
        try:
            async with self._changes():
                # Another thread may have opened the store since the caller forgot it: that opening
                # must not pass as the state after this.
                self._forget_opened()
                # Also when it was not opened here: ``store`` may have been opened directly.
                if self._store is not None:
                    await self._store.close()
        finally:
            self.io.stop_from_loop()

    def _open(self) -> ThreadResult[Store]:
        if sys.is_finalizing():
            raise Closed(_ENDING)
        store = self.store
        with self._lock:
            opening = self._opening
            if opening is None or opening.failed:
                migrate = self._migrate()
                opening = self.start(lambda: self._open_on_io(store, migrate))
                self._opening = opening
        return opening

    async def _open_on_io(self, store: Store, migrate: bool) -> Store:
        async with self._changes():
            if self.opened is None:
                await store.open(migrate=migrate)
                if self._on_open is not None:
                    await self._on_open(store)
                self.opened = store
                self.direct = store if store.capabilities.sync_calls else None
        return store

    @contextlib.asynccontextmanager
    async def _changes(self) -> AsyncGenerator[None]:
        """Wait for the changes before this one, which may run on the loop of another I/O thread. An
        asyncio.Lock would belong to one loop."""
        own = _Change()
        with self._lock:
            before, self._last_change = self._last_change, own
        try:
            while before is not None:
                before = await before.aresult()
            yield
        finally:
            # If the wait was cancelled, the next in line waits for ``before`` instead.
            own.set_result(before)

    def _check_thread(self) -> None:
        if threading.current_thread().name == _IO_NAME:
            raise Refused(
                "a synchronous call on the I/O thread would wait for itself: use the async form"
            )

    def at_fork(self, forget: Callable[[], None]) -> None:
        """Call ``forget`` in every forked child, after the parent's connections were dropped."""
        self._at_fork.append(forget)

    def forget_parent(self) -> None:
        """In a forked child: drop the thread and connections without closing them; the next use
        makes new ones."""
        # The event loop belongs to the parent. Keep it referenced: if the garbage collector closed
        # it, that would unregister sockets from the parent's epoll.
        _PARENT_THREADS.append(self.io)
        self._reset()
        if self._store is not None:
            self._store.after_fork()
        for forget in self._at_fork:
            forget()


_IO_NAME = "forge-io"
_AT_EXIT_S = 2.0
_OVERTAKEN = "another thread closed the store during this call, which may have had its effect"
_ENDING = "the interpreter is shutting down: nothing can be stored any more"
_ALL: "weakref.WeakSet[StoreAccess]" = weakref.WeakSet()
_PARENT_THREADS: list[IoThread] = []


def _after_fork() -> None:
    for access in list(_ALL):
        # An error here would be printed and could not be caught by the code that forks.
        with contextlib.suppress(Exception):
            access.forget_parent()


def _at_exit() -> None:
    for access in list(_ALL):
        # Errors at exit help nobody: everything acknowledged is durable already.
        with contextlib.suppress(Exception):
            access.close_at_exit()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
