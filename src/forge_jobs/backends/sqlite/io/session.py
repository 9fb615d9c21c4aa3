"""The writing connection of a process: transactions in turn with other processes, one at a time.

Whoever uses a session holds the lock of its writer. It leaves no transaction and no turn behind,
also when a signal interrupts it: see ``interrupts``.
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
from forge_jobs.backends.sqlite.os.fork import is_in_a_call_of
from forge_jobs.backends.sqlite.os.interrupts import is_interrupt
from forge_jobs.core.errors import ForgeError, Unavailable, Unknown
from forge_jobs.kit.clock import Clock

from .connection import WAL_KEPT, abandon, connect, set_synchronous
from .operation import Again, Joint, Work, fail
from .transaction import Tx

_LOG = logging.getLogger("forge_jobs.sqlite")

_GROUP_S: Final = 0.02
_MAX_JOINT: Final = 100
_WAL_SLACK: Final = 128 << 10
_LOOK_EVERY: Final = 16
# SQLite itself waits 10 ms per try.
_MAX_TRIES: Final = 800
_BETWEEN_TRIES_S: Final = 0.002
# Nobody folds where no worker runs: then the writers do, this many lines at a time.
_LINES_MANY: Final = 2_048
_LINES_STEP: Final = 256
_NORMAL: Final = "normal"
_FULL: Final = "full"


class Busy(Exception):
    """Somebody else writes, and the caller does not want to wait."""


class Session:
    """``synchronous`` as in SqliteStore: mixed, full or normal."""

    def __init__(self, place: DatabaseFile, clock: Clock, *, synchronous: str) -> None:
        self._place = place
        self._clock = clock
        self._durable = _NORMAL if synchronous == _NORMAL else _FULL
        self._usual = _FULL if synchronous == _FULL else _NORMAL
        self.commit_s = 0.0
        self._turnstile = FairLock(place.directory, clock)
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._identity: tuple[int, int] | None = None
        self._level = _NORMAL
        self._tag = 0
        self._turns = 0
        self._long = False
        # A transaction whose COMMIT was begun, with its operations. Outside of ``_attempt`` this
        # means that it has been committed and that they do not know yet.
        self._committing: tuple[Tx, Sequence[Work]] | None = None

    # ---------------------------------------------------------------- life

    @property
    def connection(self) -> sqlite3.Connection | None:
        return self._connection

    def needs_disk(self, *, durable: bool) -> bool:
        """Whether the commit of such a transaction waits for the disk."""
        return (self._durable if durable else self._usual) == _FULL

    def open(self, tag: int) -> None:
        """Connect; the schema is in place."""
        self._tag = tag
        if self._connection is None:
            self._turnstile.open()
            self._connection = connect(self._place.path, self._clock, synchronous=_NORMAL)
            # One cursor for all lone inserts: making one costs a microsecond.
            self._cursor = self._connection.cursor()
            self._level = _NORMAL
            self._identity = self._place.identity()

    def close(self) -> None:
        """Let go of the database. Closing twice is fine."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            # The last one to close checkpoints; that is a write like any other.
            try:
                self._turnstile.enter()
                connection.close()
            finally:
                self._turnstile.leave()
        self._turnstile.close()

    def before_fork(self) -> list[sqlite3.Connection]:
        """Give up the connection; the next turn opens a new one. Whoever gets it closes it."""
        # A transaction that an interrupted caller left open would be rolled back by the close, and
        # its operations would be taken for stored.
        self.recover()
        connection, self._connection, self._cursor = self._connection, None, None
        self._turnstile.close()
        return [] if connection is None else [connection]

    def abandon(self) -> None:
        """In a forked child: whatever is still open belongs to the parent."""
        connection, self._connection, self._cursor = self._connection, None, None
        self._committing = None
        if connection is not None:
            abandon(connection, self._place.path, returns=is_in_a_call_of(self))
        self._turnstile.close()

    # ---------------------------------------------------------------- turns

    def run_now(self, work: Work, committed: list[Tx]) -> None:
        """Run one operation if it is nobody's turn; Busy, with nothing done, if it is."""
        connection = self._connection
        if connection is None:
            raise Busy
        if self._turns % _LOOK_EVERY == 0:
            self._there()
        try:
            if not self._turnstile.try_enter():
                raise Busy
            self.recover()
            self._attempt(connection, [work], committed, patient=False)
        finally:
            self._turnstile.leave()

    def run(self, group: Sequence[Work], committed: list[Tx]) -> None:
        """Run operations in one transaction; those for which there was no time are not done."""
        connection = self._there()
        try:
            self._turnstile.enter()
            self._attempt(connection, group, committed, patient=True)
            if self._long or self.log_is_long():
                # Within the turn, and only there: see docs/decisions/0014.
                self._long = False
                with suppress(sqlite3.Error):
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            self._turnstile.leave()

    def insert(self, statement: str, values: tuple[object, ...]) -> int | None:
        """One durable INSERT as a transaction of its own; Busy, with nothing done, if need be."""
        connection, cursor = self._connection, self._cursor
        if connection is None or cursor is None:
            raise Busy
        if self._turns % _LOOK_EVERY == 0:
            self._there()
        try:
            self._turnstile.enter()
            if self._committing is not None or connection.in_transaction:
                self.recover()
            if self._level != self._durable:
                self._set_level(connection, self._durable)
            cursor.execute(statement, values)
            return cursor.lastrowid
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            raise translated(error, self._place.path, committing=True) from error
        finally:
            self._turnstile.leave()

    def recover(self) -> None:
        """Finish what an interrupted caller has left; before a group is chosen, because an
        operation that turns out to be stored must not be run again."""
        connection = self._connection
        if connection is not None and connection.in_transaction:
            self._committing = None
            connection.rollback()
        if self._committing is not None:
            self._acknowledge()

    def log_is_long(self, *, lone: bool = False) -> bool:
        """Whether the next ``run`` should move the write-ahead log into the database; asked after
        every turn, it looks only now and then when that was a lone insert."""
        self._turns += 1
        if not lone or self._turns % _LOOK_EVERY == 0:
            try:
                self._long = os.stat(self._place.wal).st_size > WAL_KEPT + _WAL_SLACK
            except OSError as error:
                if is_interrupt(error):
                    raise
        return self._long

    def _there(self) -> sqlite3.Connection:
        if self._place.identity() != self._identity:
            raise Unavailable(
                f"{self._place.path} was removed or replaced while it was in use: restart this "
                "process"
            )
        if self._connection is None:
            # It was closed for a fork.
            self.open(self._tag)
        assert self._connection is not None
        return self._connection

    # ---------------------------------------------------------------- transactions

    def _attempt(
        self,
        connection: sqlite3.Connection,
        group: Sequence[Work],
        committed: list[Tx],
        *,
        patient: bool,
    ) -> None:
        try:
            try:
                tx = self._begin(connection, any(work.durable for work in group), patient)
            except ForgeError as error:
                fail(group, error)
                return
            try:
                ran = _run(tx, group, self._clock.mono)
                tx.finish()
                if tx.line >= _LINES_MANY and tx.line % _LINES_STEP == 0:
                    roll_up.roll_up(connection.execute, _LINES_MANY)
                self._commit(connection, tx, group[:ran])
            except Exception as error:
                if is_interrupt(error):
                    raise
                _roll_back(connection)
                self._one_by_one(connection, group, error, committed, patient)
                return
            self._acknowledge()
            committed.append(tx)
        except BaseException:
            # No signal handler can run before the transaction is over: not one of these is a call
            # of a Python function.
            if connection.in_transaction:
                self._committing = None
                connection.rollback()
            raise

    def _commit(self, connection: sqlite3.Connection, tx: Tx, group: Sequence[Work]) -> None:
        began = self._clock.mono()
        try:
            self._committing = (tx, group)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._committing = None
            raise translated(error, self._place.path, committing=True) from error
        self.commit_s = self._clock.mono() - began

    def _acknowledge(self) -> None:
        """What has been committed is done; may be repeated after an interruption."""
        assert self._committing is not None
        tx, group = self._committing
        for work in group:
            work.done = True
        for deed in tx.afterwards:
            try:
                deed()
            except Exception as error:
                if is_interrupt(error):
                    raise
                _LOG.exception("what follows a commit failed; the change itself stands")
        self._committing = None

    def _one_by_one(
        self,
        connection: sqlite3.Connection,
        group: Sequence[Work],
        error: Exception,
        committed: list[Tx],
        patient: bool,
    ) -> None:
        """One bad operation fails alone; the others get their commit."""
        if isinstance(error, ForgeError) and not _certain(error):
            # Perhaps all of it is stored: trying again could store it twice.
            fail(group, error)
        elif len(group) > 1:
            for work in group:
                self._attempt(connection, [work], committed, patient=patient)
        elif isinstance(error, Again):
            self._attempt(connection, group, committed, patient=patient)
        elif isinstance(error, sqlite3.Error):
            fail(group, translated(error, self._place.path))
        else:
            fail(group, error)

    def _begin(self, connection: sqlite3.Connection, durable: bool, patient: bool) -> Tx:
        for _ in range(_MAX_TRIES):
            try:
                self._set_level(connection, self._durable if durable else self._usual)
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                # Somebody outside this library writes: the turnstile cannot order that.
                if not is_busy(error):
                    raise translated(error, self._place.path) from error
                if not patient:
                    raise Busy from error
                self._clock.pause(_BETWEEN_TRIES_S)
            else:
                return Tx(connection.execute, self._clock.now(), self._tag)
        raise Unavailable(
            f"another program has been writing to {self._place.path} for too long: "
            "end its transaction"
        )

    def _set_level(self, connection: sqlite3.Connection, level: str) -> None:
        if level != self._level:
            # Not known for as long as it is being changed.
            self._level = ""
            set_synchronous(connection, level)
            self._level = level


def _run(tx: Tx, group: Sequence[Work], mono: Callable[[], float]) -> int:
    """Run what there is time for; how many operations that were."""
    if len(group) == 1:
        group[0].value = group[0].operation(tx)
        return 1
    until, place = mono() + _GROUP_S, 0
    while place < len(group) and mono() <= until:
        place += _run_next(tx, group, place)
    return place


def _run_next(tx: Tx, group: Sequence[Work], place: int) -> int:
    """Run the next operation, and those like it that follow if they can be run together."""
    first = group[place].operation
    if not isinstance(first, Joint):
        group[place].value = first(tx)
        return 1
    calls: list[object] = []
    for work in group[place : place + _MAX_JOINT]:
        if type(work.operation) is not type(first):
            break
        calls.append(work.operation)
    for work, value in zip(group[place:], first.together(tx, calls), strict=False):
        work.value = value
    return len(calls)


def _certain(error: ForgeError) -> bool:
    """Whether this error says that nothing was stored."""
    return not isinstance(error, Unknown)


def _roll_back(connection: sqlite3.Connection) -> None:
    # Some errors have rolled back already.
    with suppress(sqlite3.Error):
        connection.rollback()
