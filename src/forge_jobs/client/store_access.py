"""One process's way to its store: opened on first use, from any thread, loop or forked child.

Synchronous calls either write on the calling thread (``enqueue_sync``) or cross over to the I/O
thread and wait there; coroutines use the store on their own loop.
"""

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeAlias, TypeVar

from forge_jobs.core.errors import Closed, Refused
from forge_jobs.kit.io_thread import IoThread
from forge_jobs.kit.thread_result import ThreadResult
from forge_jobs.store.store import Store

T = TypeVar("T")
OnOpen: TypeAlias = Callable[[Store], Coroutine[Any, Any, None]]


class StoreAccess:
    """The store of a Forge, shared by its tasks, its job handles and its workers.

    ``make_store`` is called once, on first use; ``migrate`` says whether opening may change the
    schema. A failed opening is tried again by the next call. ``direct`` is the open store if it can
    be written on the calling thread.
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
        self._closed = False
        self._at_fork: list[Callable[[], None]] = []
        self._reset()
        _LIVING.add(self)

    def _reset(self) -> None:
        self.io = IoThread()
        self.pid = os.getpid()
        self._guard = threading.Lock()
        self._opening: ThreadResult[Store] | None = None
        # On the I/O loop: one opening or closing at a time, also of callers who were interrupted.
        self._changing = asyncio.Lock()
        self.opened: Store | None = None
        self.direct: Store | None = None

    @property
    def store(self) -> Store:
        """The store, perhaps not opened yet."""
        if self._store is None:
            with self._guard:
                if self._store is None:
                    self._store = self._make_store()
        return self._store

    def ready(self) -> Store:
        """The open store, for synchronous code."""
        opened = self.opened
        if opened is not None and not sys.is_finalizing():
            return opened
        self._check_thread()
        return self._open().result()

    async def aready(self) -> Store:
        """The open store, for coroutines."""
        opened = self.opened
        if opened is not None:
            return opened
        return await self._open().arrived()

    def run(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the I/O thread and wait for it here.

        An exception that a signal handler raises here ends the wait; the coroutine goes on, so that
        what it does happens whole.
        """
        store = self.ready()
        self._check_thread()
        return self.start(lambda: work(store)).result()

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
            # Either we noticed that the interpreter ends, or Python refused to start a thread.
            raise Closed(_ENDING) from error

    def close(self) -> None:
        """Let go of everything; later calls raise Closed. Closing twice is fine."""
        if sys.is_finalizing():
            return
        self._check_thread()
        self._end()
        if self._store is not None:
            try:
                self._closing().result()
            except CancelledError:
                self.io.close()
                with contextlib.suppress(CancelledError):
                    self._closing().result()
        self.io.close()

    async def aclose(self) -> None:
        """The same for coroutines: the loop goes on meanwhile."""
        self._end()
        if self._store is not None:
            try:
                await self._closing().arrived()
            except CancelledError:
                await asyncio.to_thread(self.io.close)
                with contextlib.suppress(CancelledError):
                    await self._closing().arrived()
        await asyncio.to_thread(self.io.close)

    def rest(self) -> None:
        """At exit: close the store in good order; a later call opens it again if it still can."""
        with self._guard:
            opening = self._opening
            self.opened = self.direct = self._opening = None
        if opening is not None and opening.done and not opening.failed:
            self.io.call(opening.result().close, _AT_EXIT_S)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def _end(self) -> None:
        with self._guard:
            self._closed = True
            self.opened = self.direct = self._opening = None

    def _closing(self) -> ThreadResult[None]:
        """Cancelled if the thread ends meanwhile: a close that was interrupted still ends it."""
        try:
            return self.io.start(self._close_there)
        except RuntimeError:
            # The thread of a close that was interrupted has just ended: a new one looks again.
            self.io.close()
            return self.io.start(self._close_there)

    async def _close_there(self) -> None:
        """Close the store and end this thread, whether or not anybody still waits for it."""
        try:
            async with self._changing:
                self.opened = self.direct = None
                # Also when it was not opened here: somebody may have opened ``store`` by hand.
                if self._store is not None:
                    await self._store.close()
        finally:
            self.io.end_here()

    def _open(self) -> ThreadResult[Store]:
        if sys.is_finalizing():
            raise Closed(_ENDING)
        store = self.store if not self._closed else None
        with self._guard:
            if self._closed or store is None:
                raise Closed(_CLOSED)
            opening = self._opening
            if opening is None or opening.failed:
                migrate = self._migrate()
                opening = self.start(lambda: self._open_there(store, migrate))
                self._opening = opening
        return opening

    async def _open_there(self, store: Store, migrate: bool) -> Store:
        async with self._changing:
            if self._closed:
                raise Closed(_CLOSED)
            if self.opened is None:
                await store.open(migrate=migrate)
                if self._on_open is not None:
                    await self._on_open(store)
                self.opened = store
                self.direct = store if store.capabilities.sync_calls else None
        return store

    def _check_thread(self) -> None:
        if threading.current_thread().name == _IO_NAME:
            raise Refused(
                "a synchronous call on the I/O thread would wait for itself: use the async form"
            )

    def at_fork(self, forget: Callable[[], None]) -> None:
        """Have ``forget`` called in every forked child, after the store was let go."""
        self._at_fork.append(forget)

    def forget_parent(self) -> None:
        """In a forked child: drop thread and connections unclosed; the next use makes new ones."""
        # The thread's event loop is the parent's: closing it, as the garbage collector would, would
        # take sockets out of the parent's loop.
        _parents.append(self.io)
        self._reset()
        if self._store is not None:
            self._store.after_fork()
        for forget in self._at_fork:
            forget()


_IO_NAME = "forge-io"
_AT_EXIT_S = 2.0
_CLOSED = "this Forge was closed: make a new one"
_ENDING = "the interpreter is shutting down: nothing can be stored any more"
_LIVING: "weakref.WeakSet[StoreAccess]" = weakref.WeakSet()
_parents: list[IoThread] = []


def _after_fork() -> None:
    for access in list(_LIVING):
        # An error here would be printed and could not be caught by whoever forks.
        with contextlib.suppress(Exception):
            access.forget_parent()


def _at_exit() -> None:
    for access in list(_LIVING):
        # The end of the program is no place for complaints: nothing acknowledged is at stake.
        with contextlib.suppress(Exception):
            access.rest()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
