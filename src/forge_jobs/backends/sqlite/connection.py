"""Connections with the settings that the rest of the backend relies on."""

import ctypes
import os
import sqlite3
from typing import Final

from forge_jobs.core.errors import NotWritable, Unavailable

from .faults import translated

SQLITE_LEAST: Final = (3, 35, 0)
# Short, because the writer has its own patience: SQLite's favours newcomers.
_BUSY_S: Final = 0.01
_STATEMENTS: Final = 512
_CACHE_KB: Final = 16_384
_WAL_KEPT: Final = 4 << 20


def connect(
    path: str, *, synchronous: str = "normal", read_only: bool = False
) -> sqlite3.Connection:
    """A connection to an existing file, outside any transaction.

    Its owner keeps other threads away from it. Checkpoints are never automatic: they go through the
    turnstile.
    """
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST))
        raise NotWritable(
            f"SQLite {sqlite3.sqlite_version} is too old: this Python needs {least} or later"
        )
    if not os.path.exists(path):
        # SQLite would create an empty file with the wrong mode.
        raise Unavailable(f"{path} was removed")
    try:
        connection = sqlite3.connect(
            path,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        set_synchronous(connection, synchronous)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    return connection


def set_synchronous(connection: sqlite3.Connection, level: str) -> None:
    """Switch between ``full`` and ``normal``, outside a transaction.

    This pragma acts when it is compiled: a statement from the cache would change nothing, and
    ``executescript`` is the way around the cache.
    """
    connection.executescript(
        "PRAGMA synchronous = FULL" if level == "full" else "PRAGMA synchronous = NORMAL"
    )


def abandon(connection: sqlite3.Connection) -> None:
    """Keep a connection from ever being closed: after a fork it belongs to the parent."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
