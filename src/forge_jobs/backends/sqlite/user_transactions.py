"""``tx=``: writes inside a user's own transaction, on the user's own connection to the file.

Supported are connections of sqlite3 and aiosqlite, and connections and sessions of SQLAlchemy. Of
an enqueue only the jobs and their dedupe keys are written; the next write of the store ingests
them. Of events only the events: the next exchange delivers them. A connection without a transaction
gets one, as ``sqlite3`` itself would open it before a write, unless it is in
autocommit mode, where there would be nothing to commit.

All statements of a call run in one savepoint: an error or a signal in the middle leaves nothing of
it in the user's transaction, and no transaction open where there was none.

The store need not be open. Opening could wait for the very transaction that the call is part of:
so tables that are missing are created inside it.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from forge_jobs.backends.shared import user_connections
from forge_jobs.backends.shared.rowwise import steps
from forge_jobs.backends.shared.sql_text import ordered_values
from forge_jobs.core.errors import BadOption, Conflict, Unavailable
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite

from . import enqueue
from .error_mapping import is_busy, translated
from .io.transaction import Tx
from .os.database_file import DatabaseFile
from .steps import SQL as STEPS_SQL

_SAVEPOINT: Final = "SAVEPOINT forge_jobs_enqueue"
_MILLISECOND: Final = 1_000
_RELEASE: Final = "RELEASE forge_jobs_enqueue"
_ROLL_BACK: Final = "ROLLBACK TO forge_jobs_enqueue"

# The tag of the database, read through the connection; creates missing tables if it may.
ReadTag = Callable[[Callable[..., sqlite3.Cursor]], int]
T = TypeVar("T")


def write(
    database: DatabaseFile,
    transaction: object,
    operation: Callable[[Tx], T],
    now: Instant,
    read_tag: ReadTag,
) -> tuple[T, set[str]]:
    """Run an operation; returns its result, and the queues to notify."""
    connection = user_connections.sqlite_connection(transaction, database.path)
    return _write(database, connection, operation, now, read_tag)


async def awrite(
    database: DatabaseFile,
    transaction: object,
    operation: Callable[[Tx], T],
    now: Instant,
    read_tag: ReadTag,
) -> tuple[T, set[str]]:
    """``write`` for coroutines; also takes connections that must be awaited."""
    if not user_connections.is_async(transaction):
        return write(database, transaction, operation, now, read_tag)
    connection: Any = await user_connections.async_sqlite_connection(transaction, database.path)
    # One call on the thread of the connection: between two, another task could use it.
    return await connection._execute(
        lambda: _write(database, connection._conn, operation, now, read_tag)
    )


class JoinedKeys:
    """The keys that jobs in users' transactions got from this process.

    A rollback, also of a savepoint, makes SQLite assign the same keys again. An id is made of the
    key and the millisecond, so that within one it would name another job: keys of rolled-back jobs
    are skipped.
    """

    __slots__ = ("_key", "_tag", "_until")

    def __init__(self) -> None:
        self._tag = self._key = -1
        self._until: Instant = 0

    def insert_jobs(self, jobs: Sequence[NewJob]) -> Callable[[Tx], list[Enqueued]]:
        """The operation that stores jobs."""

        def insert(tx: Tx) -> list[Enqueued]:
            if tx.tag == self._tag and tx.top_key() < self._key:
                tx.set_top_key(self._key)
            stored = enqueue.insert_uncounted(tx, jobs)
            self._tag, self._key = tx.tag, tx.top_key()
            self._until = (tx.now // _MILLISECOND + 1) * _MILLISECOND
            return stored

        return insert

    def next_now(self, now: Instant) -> Instant:
        """The time for a job of a transaction of ours, whose key may be that of a rolled-back job:
        in another millisecond than that one's."""
        # Not after a clock was set back.
        return self._until if 0 < self._until - now <= _MILLISECOND else now


def send_events(events: Sequence[NewEvent]) -> Callable[[Tx], list[SentEvent]]:
    """The operation that stores events. Each is open: the next exchange delivers it."""

    def send(tx: Tx) -> list[SentEvent]:
        answers: list[SentEvent] = []
        for event in events:
            is_taken = event.dedupe_key is not None and not tx.steps.take_event_key(event)
            answers.append(SentEvent(duplicate=is_taken))
            if not is_taken:
                stored = tx.steps.add_event(event, is_open=True)
                waiting = tx.execute(STEPS_SQL["queues_waiting"], (stored.topic,)).fetchall()
                tx.notify_queues.update(queue for (queue,) in waiting)
        return answers

    return send


def store_step(owner: int, step: StepWrite) -> Callable[[Tx], None]:
    """The operation that stores a step of a running job."""
    return lambda tx: steps.store_in(tx, owner, step)


def _write(
    database: DatabaseFile,
    connection: sqlite3.Connection,
    operation: Callable[[Tx], T],
    now: Instant,
    read_tag: ReadTag,
) -> tuple[T, set[str]]:
    cursor = connection.cursor()
    # The user's factories must not change the values read here.
    cursor.row_factory = None
    text_factory, connection.text_factory = connection.text_factory, str
    joined = connection.in_transaction
    try:
        _same_file(database, cursor)
        _begin(connection, cursor)
        answer, notify_queues = _within(cursor, operation, now, read_tag)
    except BaseException as error:
        # A step that cannot be stored takes its whole transaction with it.
        if not joined or isinstance(error, Conflict):
            connection.rollback()
        if not isinstance(error, sqlite3.Error):
            raise
        if is_busy(error):
            raise Unavailable(
                "another connection wrote since this transaction began to read: begin it with "
                "BEGIN IMMEDIATE and try again"
            ) from error
        raise translated(error, database.path) from error
    finally:
        connection.text_factory = text_factory
        cursor.close()
    return answer, notify_queues


def _within(
    cursor: sqlite3.Cursor, operation: Callable[[Tx], T], now: Instant, read_tag: ReadTag
) -> tuple[T, set[str]]:
    try:
        cursor.execute(_SAVEPOINT)
        tx = Tx(partial(_execute, cursor), now, read_tag(cursor.execute))
        answer = operation(tx)
        cursor.execute(_RELEASE)
    except BaseException:
        try:
            cursor.execute(_ROLL_BACK)
            cursor.execute(_RELEASE)
        except sqlite3.Error:
            # Not begun, already over, or rolled back by the error: nothing is left of it.
            pass
        raise
    return answer, tx.notify_queues


def _execute(
    cursor: sqlite3.Cursor, statement: str, values: Sequence[object] = ()
) -> sqlite3.Cursor:
    return cursor.execute(statement, ordered_values(statement, values))


def _same_file(database: DatabaseFile, cursor: sqlite3.Cursor) -> None:
    for _, name, path in cursor.execute("PRAGMA database_list").fetchall():
        if name == "main" and path:
            if _is_same(path, database):
                return
            raise BadOption(f"tx= is connected to {path}, but the jobs are in {database.path}")
    raise BadOption(f"tx= has no file, but the jobs are in {database.path}")


def _is_same(path: str, database: DatabaseFile) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        # SQLite creates the file with the first statement that writes.
        return os.path.realpath(path) == database.path
    return (found.st_dev, found.st_ino) == database.identity()


def _begin(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
    if connection.in_transaction:
        return
    if connection.isolation_level is None and getattr(connection, "autocommit", -1) is not False:
        raise BadOption(
            "tx= is in autocommit mode and no transaction is open: execute BEGIN IMMEDIATE first"
        )
    cursor.execute("BEGIN IMMEDIATE")
