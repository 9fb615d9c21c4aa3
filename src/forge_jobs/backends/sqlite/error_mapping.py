"""Maps SQLite's errors to ours: no effect, unknown effect, disk full, damaged file."""

import os
import sqlite3

from forge_jobs.core.errors import (
    Corrupt,
    Full,
    NotWritable,
    SchemaMismatch,
    StoreError,
    Unavailable,
    Unknown,
)

_PRIMARY = 0xFF
_MIN_FREE_BYTES = 256 << 10


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock, so that a retry may succeed."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translated(error: sqlite3.Error, path: str, *, committing: bool = False) -> StoreError:
    """The error for the caller. ``committing``: the commit failed, so its effect is unknown."""
    code = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & _PRIMARY:
        case sqlite3.SQLITE_FULL:
            mapped = _full(path)
        case sqlite3.SQLITE_IOERR:
            mapped = _io_error(error, path, committing)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            mapped = Corrupt(
                f"{path} is damaged or not a database ({error}): restore a backup, or move the "
                "file away to begin anew"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            mapped = NotWritable(f"{path} cannot be opened for writing: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            mapped = Unavailable(
                f"another program has been writing to {path} for too long: end its transaction"
            )
        case sqlite3.SQLITE_ERROR if "no such" in str(error):
            mapped = SchemaMismatch(
                f"{path} lacks a table of this version ({error}): run `forge db migrate`"
            )
        case None if isinstance(error, sqlite3.ProgrammingError):
            mapped = Unavailable(f"{path} is closed")
        case _:
            mapped = StoreError(f"{path}: {type(error).__name__}: {error}")
    return mapped


def _io_error(error: sqlite3.Error, path: str, committing: bool) -> StoreError:
    if _is_disk_full(path):
        return _full(path)
    if committing:
        return Unknown(f"{path} could not be written for certain: {error}")
    return Unavailable(f"{path} could not be read or written: {error}")


def _full(path: str) -> Full:
    return Full(f"no room left on the disk of {path}; nothing was stored: free some space")


def _is_disk_full(path: str) -> bool:
    try:
        mapped = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return mapped.f_bavail * mapped.f_frsize < _MIN_FREE_BYTES
