"""Opens connections with the settings that the rest of the backend relies on."""

import ctypes
import os
import sqlite3
from typing import Any, Final

from forge_jobs.backends.shared.sql_text import VALUE_ORDERS
from forge_jobs.backends.sqlite.error_mapping import is_busy, translated
from forge_jobs.backends.sqlite.os.fork import FORK_HOOKS
from forge_jobs.core.errors import NotWritable, Unavailable
from forge_jobs.kit.clock import Clock

MIN_SQLITE: Final = (3, 35, 0)
# Short, because the writer retries itself: SQLite's busy handler favours newcomers.
_BUSY_TIMEOUT_S: Final = 0.01
_CACHED_STATEMENTS: Final = 512
_CACHE_KB: Final = 16_384
# After a checkpoint SQLite overwrites the write-ahead log from its start. A log of this size stays
# in the page cache, which saves a quarter of a single enqueue; beyond it, it is checkpointed.
WAL_KEEP_BYTES: Final = 4 << 20
_MAX_TRIES: Final = 500
_RETRY_PAUSE_S: Final = 0.01


class NumberedConnection(sqlite3.Connection):
    """A connection that takes the values of our statements in the order of their numbers."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        order = VALUE_ORDERS.get(sql)
        if order is not None:
            parameters = [parameters[index] for index in order]
        return super().execute(sql, parameters)


def connect(
    path: str, clock: Clock, *, synchronous: str = "normal", read_only: bool = False
) -> sqlite3.Connection:
    """Open a connection to an existing file, outside any transaction.

    The caller lets only one thread use it at a time. Automatic checkpoints are off: the writer
    checkpoints under the fair lock.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        minimum = ".".join(map(str, MIN_SQLITE))
        raise NotWritable(
            f"SQLite {sqlite3.sqlite_version} is too old: this Python needs {minimum} or later"
        )
    FORK_HOOKS.check(path)
    if not os.path.exists(path):
        # SQLite would create an empty file with the wrong mode.
        raise Unavailable(f"{path} was removed")
    for _ in range(_MAX_TRIES):
        try:
            return _connect(path, synchronous, read_only)
        except sqlite3.Error as error:
            # The last connection to close checkpoints under an exclusive lock: wait for that.
            if not is_busy(error):
                raise translated(error, path) from error
            clock.pause(_RETRY_PAUSE_S)
    raise Unavailable(f"another program keeps {path} locked: end its transaction")


def _connect(path: str, synchronous: str, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=NumberedConnection,
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEEP_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        set_synchronous(connection, synchronous)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def set_synchronous(connection: sqlite3.Connection, level: str) -> None:
    """Switch between ``full`` and ``normal``, outside a transaction.

    This pragma takes effect when it is compiled, so a cached statement would change nothing;
    ``executescript`` bypasses the cache.
    """
    connection.executescript(
        "PRAGMA synchronous = FULL" if level == "full" else "PRAGMA synchronous = NORMAL"
    )


def _deny(*_: object) -> int:
    return sqlite3.SQLITE_DENY


def abandon(connection: sqlite3.Connection, path: str, *, resumes: bool = False) -> None:
    """Give up an inherited connection in a child that was forked in the middle of a call.

    The connection belongs to the parent: any use of it, also closing it, would damage the file, and
    no other connection may be opened here. ``resumes``: this thread returns to the interrupted
    call, which must fail.
    """
    FORK_HOOKS.forbid(path)
    if resumes:
        # Not for a call of another thread, which may have left the connection's mutex locked.
        connection.set_authorizer(_deny)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
