"""The writer of a process: group commit of all waiting operations.

A thread serves asynchronous callers. A synchronous caller writes on its own thread, without a
hand-off, and includes the requests that wait. All of them hold the same lock and share one
connection, so that SQLite's page cache stays warm. The next group collects while a commit waits for
the disk.

A signal may interrupt a synchronous caller anywhere: ``os.interrupts`` has the rules that protect
the other callers.
"""

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from forge_jobs.backends.sqlite.error_mapping import translated
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.fork import FORK_HOOKS, remaining_s
from forge_jobs.backends.sqlite.os.interrupts import acquire_noted, is_interrupt, release_noted
from forge_jobs.core.errors import Closed, ForgeError, Unavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.next_turn import next_turn
from forge_jobs.kit.threads import start_thread

from .operation import Operation, T, WriteRequest, deliver, fail
from .session import Busy, Session
from .transaction import Tx

OpT = TypeVar("OpT", bound=Operation[Any])

_LOG = logging.getLogger("forge_jobs.sqlite")

_MAX_GROUP: Final = 500
# After an operation on a caller's event loop that took longer, the next ones run on the thread.
_MAX_INLINE_S: Final = 0.03
_SLOW_LOOP_S: Final = 0.5
# Likewise after a commit that waited longer than this, for all operations that wait for the disk.
_MAX_INLINE_COMMIT_S: Final = 0.003
_SLOW_DISK_S: Final = 5.0
# After two single inserts in a row on a caller's event loop that took longer, the next ones run on
# the thread for this many times as long: a slow disk blocks a loop for at most 5 % of the time.
_MAX_INSERT_S: Final = 0.001
_SLOW_INSERT_FACTOR: Final = 20


class NotifyCommit(Protocol):
    """Called after a commit that made jobs claimable or changed a setting."""

    def __call__(self, queues: set[str], *, control_changed: bool) -> None: ...


class Writer:
    """Runs operations in groups; each operation is atomic."""

    def __init__(
        self, database: DatabaseFile, clock: Clock, *, synchronous: str, notify: NotifyCommit
    ) -> None:
        self.database = self._database = database
        self._clock = clock
        self._notify_listeners = notify
        self._session = Session(database, clock, synchronous=synchronous)
        self._open = False
        self._slow_loop_until = 0.0
        self._slow_disk_until = 0.0
        self._slow_insert_until = 0.0
        self._last_insert_slow = False
        self._reset()
        FORK_HOOKS.add(self)

    def _reset(self) -> None:
        self._releases: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._waiting: deque[WriteRequest] = deque()
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # A request of ``call_alone`` that waits for the next turn of its event loop.
        self._lone: WriteRequest | None = None

    # ---------------------------------------------------------------- opening and closing

    @property
    def connection(self) -> sqlite3.Connection | None:
        """The write connection, for maintenance and tests."""
        return self._session.connection

    def check_file(self) -> None:
        """Raise StoreReplaced if the database file was removed or replaced."""
        if self._session.connection is not None:
            self._session.check_file()

    def open(self, tag: int) -> None:
        """Connect. The schema must be up to date."""
        with self._lock:
            self._session.open(tag)
            self._open = True

    def close(self) -> None:
        """Stop the thread, close the connection and fail what waits. Idempotent."""
        with self._lock:
            self._open = False
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wakeups.put(False)
            thread.join()
        with self._lock:
            unfinished, self._waiting = self._waiting, deque()
            self._session.close()
        fail(unfinished, _closed())
        deliver(unfinished)

    def before_fork(self, deadline: float) -> list[sqlite3.Connection] | None:
        """Wait for the running transaction and prevent the next one from starting."""
        acquire_noted(self._lock, remaining_s(deadline), self._releases)
        return self._session.before_fork() if self._releases else None

    def after_fork_in_parent(self) -> None:
        """Allow transactions again; the next one opens a connection."""
        release_noted(self._releases)

    def after_fork(self) -> None:
        """In a forked child: connection, thread, lock and waiting requests belong to the parent."""
        self._session.abandon()
        self._reset()

    # ---------------------------------------------------------------- callers

    async def call(self, operation: Operation[T], *, durable: bool = False) -> T:
        """Run an operation in the next group; ``durable``: synced to disk before this returns."""
        return await self._hand_over(WriteRequest(operation, durable), asyncio.get_running_loop())

    async def call_alone(self, operation: OpT, run_inline: Callable[[OpT], T | None]) -> T:
        """Run a durable operation by ``run_inline`` on this event loop, if no other call comes
        before its next turn. Else, or if that returns None for no effect, in the next group.

        A hand-off to the thread takes longer than a commit without a wait for the disk. But many
        calls at once must share a commit: only the next turn shows whether there are others.
        """
        loop, lone = asyncio.get_running_loop(), self._lone
        request = WriteRequest(operation, True)
        if lone is not None and lone.loop is loop and not lone.done:
            # It stays there until its turn, so that a third call needs no turn of its own.
            if lone.future is None:
                self._hand_over(lone, loop)
            return await self._hand_over(request, loop)
        request.loop = loop
        try:
            self._lone = request
            await next_turn()
        except BaseException:
            # Cancelled. If another call has handed it over, it takes effect.
            if request.future is not None:
                request.future.cancel()
            raise
        finally:
            if self._lone is request:
                self._lone = None
        if request.future is not None:
            return await request.future
        value = run_inline(operation)
        return await self._hand_over(request, loop) if value is None else value

    async def call_soon(self, operation: Operation[T], *, durable: bool = False) -> T:
        """The same, but inline on the event loop's thread if no other request waits or runs, and
        both the disk and recent operations were quick.

        A hand-off to the thread costs two switches of the interpreter lock, and every statement
        there two more; a busy event loop delays each of them. For callers that come one at a time:
        many at once should share a commit.
        """
        request = WriteRequest(operation, durable)
        if not self._try_inline(request):
            return await self.call(operation, durable=durable)
        if request.error is not None:
            raise request.error
        return request.value

    def call_now(self, operation: Operation[T], *, durable: bool = False) -> T:
        """``call_here``, on a shorter path when no other request waits or runs."""
        request = WriteRequest(operation, durable)
        if not self._try_inline(request):
            return self.call_here(operation, durable=durable)
        if request.error is not None:
            raise request.error
        return request.value

    def call_here(self, operation: Operation[T], *, durable: bool = False) -> T:
        """Run an operation on the calling thread, which may block."""
        request = WriteRequest(operation, durable)
        try:
            self._waiting.append(request)
            while not request.done:
                # The former holder of the lock may have run this request in its group.
                with self._lock:
                    committed = None if request.done else self._run_group()
                if committed is not None:
                    self._notify_committed(committed)
        except BaseException:
            # Interrupted: no thread starts it any more. If one runs it right now, it takes effect.
            request.done = True
            raise
        if request.error is not None:
            raise request.error
        return request.value

    def insert_here(
        self, statement: str, values: tuple[object, ...], *, notify_queue: str
    ) -> int | None:
        """Run one durable INSERT as a transaction of its own, on this thread; returns the new key.

        None, without effect, when others wait or write: then use ``call_here``.
        """
        lock = self._lock
        if self._waiting or lock.locked():
            return None
        try:
            # Not `acquire(blocking=False)`: a signal handler may raise before a `try` after it.
            with lock:
                key = self._session.insert(statement, values, wait=True)
        except Busy:
            return None
        if self._session.wal_is_long(single=True):
            self.call_here(_no_op)
        self._notify({notify_queue}, control_changed=False)
        return key

    def insert_on_loop(
        self, statement: str, values: tuple[object, ...], *, notify_queue: str
    ) -> int | None:
        """``insert_here`` for a coroutine, which waits for its own commit only. None also if
        another process writes, or if such inserts took long lately."""
        mono, lock = self._clock.mono, self._lock
        began = mono()
        if self._waiting or began < self._slow_insert_until or lock.locked():
            return None
        try:
            with lock:
                key = self._session.insert(statement, values, wait=False)
        except Busy:
            key = None
        took_s, was_slow = mono() - began, self._last_insert_slow
        self._last_insert_slow = took_s > _MAX_INSERT_S
        if self._last_insert_slow and (was_slow or key is None):
            # A single one may be the scheduler's. No key: a program without this library held
            # SQLite's lock, which waits 10 ms.
            self._slow_insert_until = began + took_s * _SLOW_INSERT_FACTOR
        if key is not None:
            if self._session.wal_is_long(single=True):
                self.run_later(_no_op)
            self._notify({notify_queue}, control_changed=False)
        return key

    def run_later(self, operation: Operation[object]) -> None:
        """Run an operation on the thread, without anybody waiting for it."""
        self._submit(WriteRequest(operation, False))

    # ---------------------------------------------------------------- groups

    def _try_inline(self, request: WriteRequest) -> bool:
        """Run the request on this thread if that needs no waiting. False: it had no effect."""
        mono, lock, session = self._clock.mono, self._lock, self._session
        began = mono()
        if self._waiting or began < self._slow_loop_until:
            return False
        if began < self._slow_disk_until and session.needs_disk(durable=request.durable):
            return False
        if lock.locked():
            return False
        committed: list[Tx] = []
        try:
            with lock:
                session.run_now(request, committed)
        except Busy:
            return False
        ended = mono()
        if session.commit_s > _MAX_INLINE_COMMIT_S:
            # Waiting for a slow disk would block everything else on this event loop.
            self._slow_disk_until = ended + _SLOW_DISK_S
        elif ended - began > _MAX_INLINE_S:
            # Other threads hold the interpreter lock: do not block the event loop.
            self._slow_loop_until = ended + _SLOW_LOOP_S
        if session.wal_is_long():
            # A checkpoint waits for the disk, so the thread runs it.
            self.run_later(_no_op)
        self._notify_committed(committed)
        return True

    def _hand_over(
        self, request: WriteRequest, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[Any]:
        """Let the thread run the request; its result arrives on this event loop."""
        if not self._open:
            raise _closed()
        request.loop, request.future = loop, loop.create_future()
        self._submit(request)
        return request.future

    def _submit(self, request: WriteRequest) -> None:
        self._waiting.append(request)
        if self._thread is None:
            start_thread(self._run_thread, name="forge-sqlite-write")
        self._wakeups.put(True)

    def _run_thread(self) -> None:
        with self._lock:
            # Set by the thread, not by its starter, which a signal may interrupt in between.
            if self._thread is not None or not self._open:
                return
            self._thread = threading.current_thread()
        wakeups = self._wakeups
        while wakeups.get():
            while self._waiting:
                # Delivered without the lock: the next call of their loop finds it free.
                finished: list[WriteRequest] = []
                try:
                    try:
                        with self._lock:
                            committed = self._run_group(finished)
                    finally:
                        deliver(finished)
                    self._notify_committed(committed)
                except Exception:
                    _LOG.exception("the writer failed; it continues with the waiting requests")

    def _run_group(self, delivered_later: list[WriteRequest] | None = None) -> list[Tx]:
        """Run waiting requests; the lock is held. Returns the committed transactions. A caller that
        no signal interrupts may deliver the finished requests itself: ``delivered_later``."""
        committed = list[Tx]()
        self._session.recover()
        self._remove_finished(delivered_later)
        waiting = self._waiting
        group = [waiting[index] for index in range(min(len(waiting), _MAX_GROUP))]
        group = [request for request in group if not request.done]
        if not group:
            return committed
        try:
            if not self._open:
                raise _closed()
            # Requests beyond the time limit keep waiting: other processes may write first.
            self._session.run(group, committed)
        except ForgeError as error:
            fail(group, error)
        except sqlite3.Error as error:
            fail(group, translated(error, self._database.path))
        except Exception as error:
            self._session.recover()
            if is_interrupt(error):
                # A signal on a caller's own thread. The other requests wait for the next group.
                raise
            fail(group, Unavailable(f"{self._database.path} cannot be written: {error}"))
            if not isinstance(error, OSError):
                raise
        except BaseException:
            self._session.recover()
            raise
        finally:
            self._remove_finished(delivered_later)
        return committed

    def _remove_finished(self, delivered_later: list[WriteRequest] | None) -> None:
        """Remove the finished requests at the head of the queue, and deliver them before that
        unless the caller does."""
        waiting = self._waiting
        finished: list[WriteRequest] = []
        for index in range(len(waiting)):
            if not waiting[index].done:
                break
            finished.append(waiting[index])
        if delivered_later is None:
            deliver(finished)
        else:
            delivered_later.extend(finished)
        for _ in finished:
            waiting.popleft()

    def _notify_committed(self, committed: Sequence[Tx]) -> None:
        for tx in committed:
            if tx.notify_queues or tx.control_changed:
                self._notify(tx.notify_queues, control_changed=tx.control_changed)

    def _notify(self, queues: set[str], *, control_changed: bool) -> None:
        try:
            self._notify_listeners(queues, control_changed=control_changed)
        except Exception as error:
            if is_interrupt(error):
                raise
            _LOG.exception("a notification failed; the change itself is stored")


def _no_op(tx: Tx) -> None:
    """An operation without effect, to run what every group runs: a checkpoint, for example."""


def _closed() -> Closed:
    return Closed("the store is closed")
