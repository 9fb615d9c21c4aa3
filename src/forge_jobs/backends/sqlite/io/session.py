"""The write connection of a process: runs transactions under the fair lock, one at a time.

The caller holds the lock of the writer. A session leaves no transaction open and no lock held, also
when a signal interrupts it: see ``os.interrupts``.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from forge_jobs.backends.sqlite import roll_up
from forge_jobs.backends.sqlite.error_mapping import is_busy, translated
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.fair_lock import FairLock
from forge_jobs.backends.sqlite.os.fork import is_in_method_of
from forge_jobs.backends.sqlite.os.interrupts import is_interrupt
from forge_jobs.backends.sqlite.os.lock_holder import blocked_text
from forge_jobs.core.errors import ForgeError, StoreReplaced, Unavailable, Unknown
from forge_jobs.kit.clock import Clock

from .connection import WAL_KEEP_BYTES, abandon, connect, set_synchronous
from .operation import Batchable, RunAlone, WriteRequest, fail
from .transaction import NotDurable, Tx

_LOG = logging.getLogger("forge_jobs.sqlite")

_MAX_GROUP_S: Final = 0.02
_MAX_BATCH: Final = 100
_WAL_SLACK: Final = 128 << 10
_CHECK_EVERY: Final = 16
# With ``synchronous=normal``: how long a single insert trusts the last look at the file.
_CHECK_S: Final = 0.005
# SQLite itself waits 10 ms per try.
_MAX_TRIES: Final = 800
_WARN_TRIES: Final = 100
_RETRY_PAUSE_S: Final = 0.002
# Without a worker no service rolls counter entries up: then the writer does, this many at a time.
_MAX_ENTRIES: Final = 2_048
_ENTRIES_STEP: Final = 256
_NORMAL: Final = "normal"
_FULL: Final = "full"


class Busy(Exception):
    """Another writer is active, and the caller does not want to wait."""


class Session:
    """The write connection. ``synchronous`` as in SqliteStore: mixed, full or normal."""

    def __init__(self, database: DatabaseFile, clock: Clock, *, synchronous: str) -> None:
        self._database = database
        self._clock = clock
        self._durable_level = _NORMAL if synchronous == _NORMAL else _FULL
        self._default_level = _FULL if synchronous == _FULL else _NORMAL
        self.commit_s = 0.0
        self._fair_lock = FairLock(database.directory, clock)
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._identity: tuple[int, int] | None = None
        self._level = _NORMAL
        self._tag = 0
        self._runs = 0
        self._checked_until = 0.0
        self._wal_is_long = False
        # A transaction whose COMMIT has begun, with its requests. Outside ``_run_transaction``: it
        # was committed, and the requests are not marked as done yet.
        self._committing: tuple[Tx, Sequence[WriteRequest]] | None = None

    # ---------------------------------------------------------------- opening and closing

    @property
    def connection(self) -> sqlite3.Connection | None:
        return self._connection

    def needs_disk(self, *, durable: bool) -> bool:
        """Whether the commit of such a transaction waits for the disk."""
        return (self._durable_level if durable else self._default_level) == _FULL

    def open(self, tag: int) -> None:
        """Connect. The schema must be up to date."""
        self._tag = tag
        if self._connection is None:
            self._fair_lock.open()
            self._connection = connect(self._database.path, self._clock, synchronous=_NORMAL)
            # One cursor for all single inserts: creating one costs a microsecond.
            self._cursor = self._connection.cursor()
            self._level = _NORMAL
            self._identity = self._database.identity()

    def close(self) -> None:
        """Close the connection and the lock files. Idempotent."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            # The last connection to close checkpoints, which is a write.
            try:
                self._fair_lock.acquire()
                connection.close()
            finally:
                self._fair_lock.release()
        self._fair_lock.close()

    def before_fork(self) -> list[sqlite3.Connection]:
        """Hand the connection over to be closed; the next transaction opens a new one."""
        # Closing would roll back a transaction that an interrupted caller left open, and its
        # operations would be taken for stored.
        self.recover()
        connection, self._connection, self._cursor = self._connection, None, None
        self._fair_lock.close()
        return [] if connection is None else [connection]

    def abandon(self) -> None:
        """In a forked child: a connection that is still open belongs to the parent."""
        connection, self._connection, self._cursor = self._connection, None, None
        self._committing = None
        if connection is not None:
            abandon(connection, self._database.path, resumes=is_in_method_of(self))
        self._fair_lock.close()

    # ---------------------------------------------------------------- groups

    def run_now(self, request: WriteRequest, committed: list[Tx]) -> None:
        """Run one request at once; raises Busy, without effect, if another process writes."""
        connection = self._connection
        if connection is None:
            raise Busy
        try:
            if not self._fair_lock.try_acquire():
                raise Busy
            self.check_file()
            self.recover()
            self._run_transaction(connection, [request], committed, wait=False)
        finally:
            self._fair_lock.release()

    def run(self, group: Sequence[WriteRequest], committed: list[Tx]) -> None:
        """Run requests in one transaction; those beyond its time limit stay not ``done``."""
        connection = self._connected()
        try:
            self._fair_lock.acquire()
            self.check_file()
            self._run_transaction(connection, group, committed, wait=True)
            if self._wal_is_long or self.wal_is_long():
                # Only under the fair lock: see docs/decisions/0014.
                self._wal_is_long = False
                with suppress(sqlite3.Error):
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            self._fair_lock.release()

    def insert(self, statement: str, values: tuple[object, ...], *, wait: bool) -> int | None:
        """Run one durable INSERT as a transaction of its own; raises Busy, without effect, if the
        database is locked, or without ``wait`` if another process holds the fair lock."""
        connection, cursor = self._connection, self._cursor
        if connection is None or cursor is None:
            raise Busy
        try:
            if not self._fair_lock.try_acquire():
                if not wait:
                    raise Busy
                self._fair_lock.wait()
            if self._durable_level == _FULL:
                self.check_file()
            elif self._clock.mono() >= self._checked_until:
                # Without a wait for the disk an insert takes 18 µs, and the check 2 of them.
                self.check_file()
                self._checked_until = self._clock.mono() + _CHECK_S
            if self._committing is not None or connection.in_transaction:
                self.recover()
            if self._level != self._durable_level:
                self._set_level(connection, self._durable_level)
            cursor.execute(statement, values)
            return cursor.lastrowid
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            raise translated(error, self._database.path, committing=True) from error
        finally:
            self._fair_lock.release()

    def recover(self) -> None:
        """Clean up after an interrupted caller. Runs before a group is chosen, because an operation
        that turns out to be stored must not run again."""
        connection = self._connection
        if connection is not None and connection.in_transaction:
            self._committing = None
            connection.rollback()
        if self._committing is not None:
            self._acknowledge()

    def wal_is_long(self, *, single: bool = False) -> bool:
        """Whether the next ``run`` should checkpoint the write-ahead log. Called after every
        transaction; after a single insert it reads the file's size only now and then."""
        self._runs += 1
        if not single or self._runs % _CHECK_EVERY == 0:
            try:
                self._wal_is_long = (
                    os.stat(self._database.wal).st_size > WAL_KEEP_BYTES + _WAL_SLACK
                )
            except OSError as error:
                if is_interrupt(error):
                    raise
        return self._wal_is_long

    def check_file(self) -> None:
        """Raise StoreReplaced if the path no longer leads to the file that is open here.

        Called whenever a transaction begins: a removed file would take writes that nobody can read,
        and the write-ahead log may belong to the new file by now.
        """
        try:
            found = os.stat(self._database.path)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError as error:
            if is_interrupt(error):
                raise
            raise Unavailable(f"{self._database.path} cannot be reached: {error}") from error
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise StoreReplaced(
                f"{self._database.path} was removed or replaced while it was in use: restart this "
                "process"
            )

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            # It was closed for a fork.
            self.check_file()
            self.open(self._tag)
        assert self._connection is not None
        return self._connection

    # ---------------------------------------------------------------- transactions

    def _run_transaction(
        self,
        connection: sqlite3.Connection,
        group: Sequence[WriteRequest],
        committed: list[Tx],
        *,
        wait: bool,
    ) -> None:
        try:
            try:
                tx = self._begin(connection, any(request.durable for request in group), wait)
            except ForgeError as error:
                fail(group, error)
                return
            try:
                count = _run(tx, group, self._clock.mono)
                tx.before_commit()
                if tx.entry_id >= _MAX_ENTRIES and tx.entry_id % _ENTRIES_STEP == 0:
                    roll_up.roll_up(connection.execute, _MAX_ENTRIES)
                self._commit(connection, tx, group[:count])
            except Exception as error:
                if is_interrupt(error):
                    raise
                _roll_back(connection)
                self._retry_singly(connection, group, error, committed, wait)
                return
            self._acknowledge()
            committed.append(tx)
        except BaseException:
            # No signal handler can run before the rollback: none of these calls a Python function.
            if connection.in_transaction:
                self._committing = None
                connection.rollback()
            raise

    def _commit(
        self, connection: sqlite3.Connection, tx: Tx, group: Sequence[WriteRequest]
    ) -> None:
        began = self._clock.mono()
        try:
            self._committing = (tx, group)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._committing = None
            raise translated(error, self._database.path, committing=True) from error
        self.commit_s = self._clock.mono() - began

    def _acknowledge(self) -> None:
        """Mark the requests of the committed transaction as done and run its callbacks. May be
        repeated after an interruption."""
        assert self._committing is not None
        tx, group = self._committing
        for request in group:
            request.done = True
        for callback in tx.after_commit:
            try:
                callback()
            except Exception as error:
                if is_interrupt(error):
                    raise
                _LOG.exception("a callback after a commit failed; the change itself is stored")
        self._committing = None

    def _retry_singly(
        self,
        connection: sqlite3.Connection,
        group: Sequence[WriteRequest],
        error: Exception,
        committed: list[Tx],
        wait: bool,
    ) -> None:
        """Run the requests of a failed group one by one, so that only the bad one fails."""
        if isinstance(error, ForgeError) and not _nothing_stored(error):
            # Everything may be stored: a retry could store it twice.
            fail(group, error)
        elif len(group) > 1:
            for request in group:
                self._run_transaction(connection, [request], committed, wait=wait)
        elif isinstance(error, RunAlone | NotDurable):
            group[0].durable = group[0].durable or isinstance(error, NotDurable)
            self._run_transaction(connection, group, committed, wait=wait)
        elif isinstance(error, sqlite3.Error):
            fail(group, translated(error, self._database.path))
        else:
            fail(group, error)

    def _begin(self, connection: sqlite3.Connection, durable: bool, wait: bool) -> Tx:
        for number in range(_MAX_TRIES):
            try:
                self._set_level(connection, self._durable_level if durable else self._default_level)
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                # A program without this library writes: the fair lock does not cover it.
                if not is_busy(error):
                    raise translated(error, self._database.path) from error
                if not wait:
                    raise Busy from error
                if number == _WARN_TRIES:
                    _LOG.warning("a write waits: %s", blocked_text(self._database))
                self._clock.pause(_RETRY_PAUSE_S)
            else:
                return Tx(connection.execute, self._clock.now(), self._tag, is_durable=durable)
        raise Unavailable(blocked_text(self._database))

    def _set_level(self, connection: sqlite3.Connection, level: str) -> None:
        if level != self._level:
            # Unknown while it is being changed, in case of an interrupt.
            self._level = ""
            set_synchronous(connection, level)
            self._level = level


def _run(tx: Tx, group: Sequence[WriteRequest], mono: Callable[[], float]) -> int:
    """Run requests until the time limit of a group; returns how many."""
    if len(group) == 1:
        group[0].value = group[0].operation(tx)
        return 1
    until, index = mono() + _MAX_GROUP_S, 0
    while index < len(group) and mono() <= until:
        index += _run_next(tx, group, index)
    return index


def _run_next(tx: Tx, group: Sequence[WriteRequest], index: int) -> int:
    """Run the next request, as a batch with those of its type that follow; returns how many."""
    first = group[index].operation
    if not isinstance(first, Batchable):
        group[index].value = first(tx)
        return 1
    calls: list[object] = []
    for request in group[index : index + _MAX_BATCH]:
        if type(request.operation) is not type(first):
            break
        calls.append(request.operation)
    for request, value in zip(group[index:], first.run_batch(tx, calls), strict=False):
        request.value = value
    return len(calls)


def _nothing_stored(error: ForgeError) -> bool:
    """Whether this error means that nothing was stored."""
    return not isinstance(error, Unknown)


def _roll_back(connection: sqlite3.Connection) -> None:
    # Some errors have rolled back already.
    with suppress(sqlite3.Error):
        connection.rollback()
