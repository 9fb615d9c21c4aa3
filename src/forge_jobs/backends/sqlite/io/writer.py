"""The one writer of a process: everything that waits goes into one transaction and one commit.

Asynchronous callers are served by a thread; a synchronous caller writes on its own thread, without
a hand-off, and takes along whatever is waiting. All of them hold the same lock and share one
connection, so that SQLite's page cache stays warm. While one commit waits for the disk the next
group gathers.

A signal may interrupt a synchronous caller anywhere: ``interrupts`` has the rules that keep the
others unharmed.
"""

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from forge_jobs.backends.sqlite.error_mapping import translated
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.fork import FORKING, remaining_s
from forge_jobs.backends.sqlite.os.interrupts import acquire_noted, is_interrupt, release_noted
from forge_jobs.core.errors import Closed, ForgeError, Unavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.threads import start_thread

from .operation import Operation, T, Work, deliver, fail
from .session import Busy, Session
from .transaction import Tx

_LOG = logging.getLogger("forge_jobs.sqlite")

_MAX_GROUP: Final = 500
# An operation on a caller's event loop that took longer sends the next ones to the thread.
_QUICK_S: Final = 0.03
_PAUSE_S: Final = 0.5
# So does a commit that waited longer than this for the disk, for all that need the disk.
_QUICK_COMMIT_S: Final = 0.003
_SLOW_DISK_S: Final = 5.0


class Announce(Protocol):
    """What happens after a commit that made jobs due or changed a setting."""

    def __call__(self, queues: set[str], *, operated: bool) -> None: ...


class Writer:
    """Runs operations in groups; an operation either happens whole or not at all."""

    def __init__(
        self, place: DatabaseFile, clock: Clock, *, synchronous: str, announce: Announce
    ) -> None:
        self.place = self._place = place
        self._clock = clock
        self._announce = announce
        self._session = Session(place, clock, synchronous=synchronous)
        self._open = False
        self._hurried_until = 0.0
        self._slow_disk_until = 0.0
        self._begin_afresh()
        FORKING.add(self)

    def _begin_afresh(self) -> None:
        self._releases: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- life

    @property
    def connection(self) -> sqlite3.Connection | None:
        """The connection that writes, for those who look after the database."""
        return self._session.connection

    def open(self, tag: int) -> None:
        """Connect; the schema is in place."""
        with self._lock:
            self._session.open(tag)
            self._open = True

    def close(self) -> None:
        """End the thread and let go of the database. Closing twice is fine."""
        with self._lock:
            self._open = False
            thread, self._thread = self._thread, None
        if thread is not None:
            self._bell.put(False)
            thread.join()
        with self._lock:
            left, self._waiting = self._waiting, deque()
            self._session.close()
        fail(left, _closed())
        deliver(left)

    def before_fork(self, until: float) -> list[sqlite3.Connection] | None:
        """Wait for the running transaction and keep the next one from beginning."""
        acquire_noted(self._lock, remaining_s(until), self._releases)
        return self._session.before_fork() if self._releases else None

    def after_fork_in_parent(self) -> None:
        """Go on; the next transaction opens a connection."""
        release_noted(self._releases)

    def after_fork(self) -> None:
        """In a forked child: connection, thread, lock and what waits belong to the parent."""
        self._session.abandon()
        self._begin_afresh()

    # ---------------------------------------------------------------- callers

    async def call(self, operation: Operation[T], *, durable: bool = False) -> T:
        """Run an operation with the next group; ``durable``: on the disk before this returns."""
        if not self._open:
            raise _closed()
        work = Work(operation, durable)
        work.loop = asyncio.get_running_loop()
        work.future = work.loop.create_future()
        self._send(work)
        return await work.future

    async def call_soon(self, operation: Operation[T], *, durable: bool = False) -> T:
        """The same, but at once on this very thread if nobody is in the way and both the disk and
        such operations have been quick lately.

        A hand-off to the thread costs two changes of the interpreter lock and every statement over
        there two more; a busy event loop makes each of them wait. For callers that come one at a
        time: many at once had better share a commit.
        """
        work = Work(operation, durable)
        if not self._at_once(work):
            return await self.call(operation, durable=durable)
        if work.error is not None:
            raise work.error
        return work.value

    def call_now(self, operation: Operation[T], *, durable: bool = False) -> T:
        """``call_here`` on the shortest way when nobody is in the way."""
        work = Work(operation, durable)
        if not self._at_once(work):
            return self.call_here(operation, durable=durable)
        if work.error is not None:
            raise work.error
        return work.value

    def call_here(self, operation: Operation[T], *, durable: bool = False) -> T:
        """The same on the calling thread, which may be kept waiting."""
        work = Work(operation, durable)
        try:
            self._waiting.append(work)
            while not work.done:
                # Whoever holds the lock may have taken this operation along.
                with self._lock:
                    news = None if work.done else self._turn()
                if news is not None:
                    self._tell(news)
        except BaseException:
            # Interrupted: nobody shall begin it any more. If somebody runs it right now it happens.
            work.done = True
            raise
        if work.error is not None:
            raise work.error
        return work.value

    def insert_here(self, statement: str, values: tuple[object, ...], *, woken: str) -> int | None:
        """One durable INSERT as a transaction of its own, on this thread; the key it was given.

        None, with nothing done, when others wait or write: then ``call_here`` is the way.
        """
        lock = self._lock
        if self._waiting or lock.locked():
            return None
        try:
            # Not `acquire(blocking=False)`: a signal handler may raise before its `try` begins.
            with lock:
                key = self._session.insert(statement, values)
        except Busy:
            return None
        if self._session.log_is_long(lone=True):
            self.call_here(_nothing)
        self._notify({woken}, operated=False)
        return key

    # ---------------------------------------------------------------- turns

    def _at_once(self, work: Work) -> bool:
        """Whether the operation was run here and now; otherwise nothing has happened."""
        mono, lock, session = self._clock.mono, self._lock, self._session
        began = mono()
        if self._waiting or began < self._hurried_until:
            return False
        if began < self._slow_disk_until and session.needs_disk(durable=work.durable):
            return False
        if lock.locked():
            return False
        committed: list[Tx] = []
        try:
            with lock:
                session.run_now(work, committed)
        except Busy:
            return False
        ended = mono()
        if session.commit_s > _QUICK_COMMIT_S:
            # Waiting for a slow disk would stop everything else that runs on this loop.
            self._slow_disk_until = ended + _SLOW_DISK_S
        elif ended - began > _QUICK_S:
            # Threads keep the interpreter from us: leave the event loop alone.
            self._hurried_until = ended + _PAUSE_S
        if session.log_is_long():
            # A checkpoint waits for the disk: that is for the thread.
            self._send(Work(_nothing, False))
        self._tell(committed)
        return True

    def _send(self, work: Work) -> None:
        self._waiting.append(work)
        if self._thread is None:
            start_thread(self._serve, name="forge-sqlite-write")
        self._bell.put(True)

    def _serve(self) -> None:
        with self._lock:
            # Here and not by those who start it: one of them may be interrupted before it does.
            if self._thread is not None or not self._open:
                return
            self._thread = threading.current_thread()
        bell = self._bell
        while bell.get():
            while self._waiting:
                try:
                    with self._lock:
                        news = self._turn()
                    self._tell(news)
                except Exception:
                    _LOG.exception("the writer failed; it goes on with what waits")

    def _turn(self) -> list[Tx]:
        """Run what waits; the lock is held. The transactions that were committed."""
        committed = list[Tx]()
        self._session.recover()
        self._dismiss()
        line = self._waiting
        group = [line[place] for place in range(min(len(line), _MAX_GROUP))]
        group = [work for work in group if not work.done]
        if not group:
            return committed
        try:
            if not self._open:
                raise _closed()
            # Those for which there is no time stay in line: other processes come first.
            self._session.run(group, committed)
        except ForgeError as error:
            fail(group, error)
        except sqlite3.Error as error:
            fail(group, translated(error, self._place.path))
        except Exception as error:
            self._session.recover()
            if is_interrupt(error):
                # A signal on a caller's own thread. The others stay in line for the next turn.
                raise
            fail(group, Unavailable(f"{self._place.path} cannot be written: {error}"))
            if not isinstance(error, OSError):
                raise
        except BaseException:
            self._session.recover()
            raise
        finally:
            self._dismiss()
        return committed

    def _dismiss(self) -> None:
        """Tell those at the head of the line whose operation is over, and let them go."""
        line = self._waiting
        over: list[Work] = []
        for place in range(len(line)):
            if not line[place].done:
                break
            over.append(line[place])
        deliver(over)
        for _ in over:
            line.popleft()

    def _tell(self, committed: Sequence[Tx]) -> None:
        for tx in committed:
            if tx.woken or tx.operated:
                self._notify(tx.woken, operated=tx.operated)

    def _notify(self, queues: set[str], *, operated: bool) -> None:
        try:
            self._announce(queues, operated=operated)
        except Exception as error:
            if is_interrupt(error):
                raise
            _LOG.exception("a wake-up failed; the change itself stands")


def _nothing(tx: Tx) -> None:
    """An operation that only brings its turn along, with what is done in every turn."""


def _closed() -> Closed:
    return Closed("the store is closed")
