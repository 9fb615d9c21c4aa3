"""The one writer of a process: everything that waits goes into one transaction and one commit.

Asynchronous callers are served by a thread; a synchronous caller writes on its own thread, without
a hand-off, and takes along whatever is waiting. Both hold the same lock and the same connection, so
that SQLite's page cache stays warm. While one commit waits for the disk the next group gathers.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Protocol

from forge_jobs.core.errors import Closed, ForgeError, Full, Unavailable
from forge_jobs.kit.clock import Clock

from .connection import abandon, connect, set_synchronous
from .faults import is_busy, translated
from .place import Place
from .transaction import Tx
from .turnstile import Turnstile
from .work import Again, Operation, T, Work, deliver, fail

_LOG = logging.getLogger("forge_jobs.sqlite")

_GROUP_MOST: Final = 500
_GROUP_S: Final = 0.02
_WAL_MOST: Final = 16 << 20
_WAL_LOOK_EVERY: Final = 16
# SQLite itself waits 10 ms per try.
_TRIES_MOST: Final = 800
_BETWEEN_TRIES_S: Final = 0.002


class Announce(Protocol):
    """What happens after a commit that made jobs due or changed a setting."""

    def __call__(self, queues: set[str], *, operated: bool) -> None: ...


class Writer:
    """Runs operations in groups; an operation either happens whole or not at all."""

    def __init__(self, place: Place, clock: Clock, *, durable: str, announce: Announce) -> None:
        self._place = place
        self._clock = clock
        self._durable = durable
        self._announce = announce
        self._turnstile = Turnstile(place.directory)
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._level = "normal"
        self._tag = 0
        self._groups = 0
        self._open = False
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- life

    def open(self, tag: int) -> None:
        """Connect; the schema is in place."""
        with self._lock:
            self._tag = tag
            self._open = True
            self._ready()

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
            connection, self._connection = self._connection, None
            if connection is not None:
                # The last one to close checkpoints; that is a write like any other.
                self._turnstile.enter()
                try:
                    connection.close()
                finally:
                    self._turnstile.leave()
            self._turnstile.close()
        fail(left, _closed())
        deliver(left)

    def after_fork(self) -> None:
        """In a forked child: connection, thread, lock and what waits belong to the parent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            abandon(connection)
        self._turnstile.close()
        self._begin_afresh()

    def _ready(self) -> sqlite3.Connection:
        """The connection; made anew after a fork. The lock is held."""
        connection = self._connection
        if connection is None:
            if not self._open:
                raise _closed()
            self._turnstile.open()
            connection = self._connection = connect(self._place.path, synchronous="normal")
            self._level = "normal"
            self._identity = self._place.identity()
        elif self._place.identity() != self._identity:
            raise Unavailable(
                f"{self._place.path} was removed or replaced while it was in use: restart this "
                "process"
            )
        return connection

    # ---------------------------------------------------------------- callers

    async def call(self, operation: Operation[T], *, durable: bool = False) -> T:
        """Run an operation with the next group; ``durable``: on the disk before this returns."""
        if not self._open:
            raise _closed()
        work = Work(operation, durable)
        work.loop = asyncio.get_running_loop()
        work.future = work.loop.create_future()
        self._waiting.append(work)
        if self._thread is None:
            self._start()
        self._bell.put(True)
        return await work.future

    def call_here(self, operation: Operation[T], *, durable: bool = False) -> T:
        """The same on the calling thread."""
        work = Work(operation, durable)
        self._waiting.append(work)
        while not work.done:
            # Whoever holds the lock may have taken this operation along.
            with self._lock:
                news = None if work.done else self._turn()
            if news is not None:
                self._tell(news)
        if work.error is not None:
            raise work.error
        return work.value

    def alone(self, statement: str, values: tuple[object, ...], *, woken: str) -> int | None:
        """One durable INSERT as a transaction of its own, on this thread; the key it was given.

        None, with nothing done, when others wait or write: then ``call_here`` is the way.
        """
        lock = self._lock
        if self._waiting or not lock.acquire(blocking=False):
            return None
        try:
            connection = self._connection
            if connection is None:
                return None
            self._turnstile.enter()
            try:
                if self._level != self._durable:
                    set_synchronous(connection, self._durable)
                    self._level = self._durable
                key = connection.execute(statement, values).lastrowid
                self._keep_short(connection)
            except sqlite3.Error as error:
                if is_busy(error):
                    return None
                raise translated(error, self._place.path, committing=True) from error
            finally:
                self._turnstile.leave()
        finally:
            lock.release()
        self._ring({woken}, operated=False)
        return key

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="forge-sqlite-write", daemon=True
                )
                self._thread.start()

    def _serve(self) -> None:
        bell = self._bell
        while bell.get():
            while self._waiting:
                try:
                    with self._lock:
                        news = self._turn()
                    self._tell(news)
                except Exception:
                    _LOG.exception("the writer failed; it goes on with what waits")

    # ---------------------------------------------------------------- groups

    def _turn(self) -> list[Tx]:
        """Take what waits and run it; the lock is held. The transactions that were committed."""
        group = self._take()
        committed: list[Tx] = []
        if not group:
            return committed
        try:
            connection = self._ready()
            self._turnstile.enter()
            try:
                self._attempt(connection, group, committed)
                self._keep_short(connection)
            finally:
                self._turnstile.leave()
            for tx in committed:
                for deed in tx.afterwards:
                    deed()
        except ForgeError as error:
            fail(group, error)
        except sqlite3.Error as error:
            fail(group, translated(error, self._place.path))
        except OSError as error:
            fail(group, Unavailable(f"{self._place.path} cannot be written: {error}"))
        except BaseException:
            # Ctrl-C on a caller's own thread: the others must not wait for ever.
            fail(group, Unavailable("the write was interrupted"))
            raise
        finally:
            deliver(group)
        return committed

    def _take(self) -> list[Work]:
        waiting, group = self._waiting, list[Work]()
        while waiting and len(group) < _GROUP_MOST:
            group.append(waiting.popleft())
        return group

    def _attempt(
        self, connection: sqlite3.Connection, group: list[Work], committed: list[Tx]
    ) -> None:
        durable = any(work.durable for work in group)
        try:
            tx = self._begin(connection, durable=durable)
        except ForgeError as error:
            fail(group, error)
            return
        ran: Sequence[Work] = ()
        try:
            ran = self._run(tx, group)
            tx.finish()
        except Exception as error:
            _roll_back(connection)
            self._one_by_one(connection, group, error, committed)
            return
        except BaseException:
            _roll_back(connection)
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            fault = translated(error, self._place.path, committing=True)
            if isinstance(fault, Full) and len(group) > 1:
                self._one_by_one(connection, group, fault, committed)
            else:
                fail(group, fault)
            return
        for work in ran:
            work.done = True
        committed.append(tx)
        if len(ran) < len(group):
            # Long enough: other processes come first, then the rest.
            self._waiting.extendleft(reversed(group[len(ran) :]))
            del group[len(ran) :]

    def _run(self, tx: Tx, group: list[Work]) -> Sequence[Work]:
        if len(group) == 1:
            group[0].value = group[0].operation(tx)
            return group
        mono = self._clock.mono
        until = mono() + _GROUP_S
        for place, work in enumerate(group):
            work.value = work.operation(tx)
            if mono() > until:
                return group[: place + 1]
        return group

    def _one_by_one(
        self,
        connection: sqlite3.Connection,
        group: list[Work],
        error: Exception,
        committed: list[Tx],
    ) -> None:
        """One bad operation fails alone; the others get their commit."""
        if len(group) > 1:
            for work in group:
                self._attempt(connection, [work], committed)
        elif isinstance(error, Again):
            self._attempt(connection, group, committed)
        elif isinstance(error, sqlite3.Error):
            fail(group, translated(error, self._place.path))
        else:
            fail(group, error)

    def _begin(self, connection: sqlite3.Connection, *, durable: bool) -> Tx:
        level = self._durable if durable else "normal"
        execute = connection.execute
        for _ in range(_TRIES_MOST):
            try:
                if level != self._level:
                    set_synchronous(connection, level)
                    self._level = level
                execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                # Somebody outside this library writes: the turnstile cannot order that.
                if not is_busy(error):
                    raise translated(error, self._place.path) from error
                self._clock.pause(_BETWEEN_TRIES_S)
            else:
                return Tx(execute, self._clock.now(), self._tag)
        raise Unavailable(
            f"another program has been writing to {self._place.path} for too long: "
            "end its transaction"
        )

    def _keep_short(self, connection: sqlite3.Connection) -> None:
        """Move the write-ahead log into the database before it grows long."""
        self._groups += 1
        if self._groups % _WAL_LOOK_EVERY:
            return
        with suppress(OSError, sqlite3.Error):
            if os.stat(self._place.wal).st_size > _WAL_MOST:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _tell(self, committed: list[Tx]) -> None:
        for tx in committed:
            if tx.woken or tx.operated:
                self._ring(tx.woken, operated=tx.operated)

    def _ring(self, queues: set[str], *, operated: bool) -> None:
        try:
            self._announce(queues, operated=operated)
        except Exception:
            _LOG.exception("a wake-up failed; the change itself stands")


def _closed() -> Closed:
    return Closed("the store is closed")


def _roll_back(connection: sqlite3.Connection) -> None:
    # Some errors have rolled back already.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
