"""``tx=``: enqueues jobs inside a user's own transaction, on the user's own connection to the file.

Supported are connections of sqlite3 and aiosqlite, and connections and sessions of SQLAlchemy. Only
the jobs and their dedupe keys are written; the next write of the store ingests them. A connection
without a transaction gets one, as ``sqlite3`` itself would open it before a write, unless it is in
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
from typing import Any, Final

from forge_jobs.backends.shared import user_connections
from forge_jobs.backends.shared.sql_text import ordered_values
from forge_jobs.core.errors import BadOption, Unavailable
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob

from . import enqueue
from .error_mapping import is_busy, translated
from .io.transaction import Tx
from .os.database_file import DatabaseFile

_SAVEPOINT: Final = "SAVEPOINT forge_jobs_enqueue"
_RELEASE: Final = "RELEASE forge_jobs_enqueue"
_ROLL_BACK: Final = "ROLLBACK TO forge_jobs_enqueue"

# The tag of the database, read through the connection; creates missing tables if it may.
ReadTag = Callable[[Callable[..., sqlite3.Cursor]], int]
Inserted = tuple[list[Enqueued], set[str]]


def insert(
    database: DatabaseFile,
    transaction: object,
    jobs: Sequence[NewJob],
    now: Instant,
    read_tag: ReadTag,
) -> Inserted:
    """Store jobs; returns the replies, and the queues to notify."""
    connection = user_connections.sqlite_connection(transaction, database.path)
    return _insert(database, connection, jobs, now, read_tag)


async def ainsert(
    database: DatabaseFile,
    transaction: object,
    jobs: Sequence[NewJob],
    now: Instant,
    read_tag: ReadTag,
) -> Inserted:
    """``insert`` for coroutines; also takes connections that must be awaited."""
    if not user_connections.is_async(transaction):
        return insert(database, transaction, jobs, now, read_tag)
    connection: Any = await user_connections.async_sqlite_connection(transaction, database.path)
    # One call on the thread of the connection: between two, another task could use it.
    return await connection._execute(
        lambda: _insert(database, connection._conn, jobs, now, read_tag)
    )


def _insert(
    database: DatabaseFile,
    connection: sqlite3.Connection,
    jobs: Sequence[NewJob],
    now: Instant,
    read_tag: ReadTag,
) -> Inserted:
    cursor = connection.cursor()
    # The user's factories must not change the values read here.
    cursor.row_factory = None
    text_factory, connection.text_factory = connection.text_factory, str
    joined = connection.in_transaction
    try:
        _same_file(database, cursor)
        _begin(connection, cursor)
        answers, notify_queues = _within(cursor, jobs, now, read_tag)
    except BaseException as error:
        if not joined:
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
    return answers, notify_queues


def _within(
    cursor: sqlite3.Cursor, jobs: Sequence[NewJob], now: Instant, read_tag: ReadTag
) -> Inserted:
    try:
        cursor.execute(_SAVEPOINT)
        tx = Tx(partial(_execute, cursor), now, read_tag(cursor.execute))
        answers = enqueue.insert_uncounted(tx, jobs)
        cursor.execute(_RELEASE)
    except BaseException:
        try:
            cursor.execute(_ROLL_BACK)
            cursor.execute(_RELEASE)
        except sqlite3.Error:
            # Not begun, already over, or rolled back by the error: nothing is left of it.
            pass
        raise
    return answers, tx.notify_queues


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
