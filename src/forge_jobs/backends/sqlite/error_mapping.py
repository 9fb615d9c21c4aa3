"""From SQLite's errors to ours: nothing happened, perhaps something did, no room, damaged."""

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
_MIN_ROOM = 256 << 10


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds the database and trying again helps."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translated(error: sqlite3.Error, path: str, *, committing: bool = False) -> StoreError:
    """What a caller is told. ``committing``: the commit itself failed, so its effect is open."""
    code = getattr(error, "sqlite_errorcode", None)
    match None if code is None else code & _PRIMARY:
        case sqlite3.SQLITE_FULL:
            found = _full(path)
        case sqlite3.SQLITE_IOERR:
            found = _broken(error, path, committing)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            found = Corrupt(
                f"{path} is damaged or not a database ({error}): restore a backup, or move the "
                "file away to begin anew"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            found = NotWritable(f"{path} cannot be opened for writing: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            found = Unavailable(
                f"another program has been writing to {path} for too long: end its transaction"
            )
        case sqlite3.SQLITE_ERROR if "no such" in str(error):
            found = SchemaMismatch(
                f"{path} lacks a table of this version ({error}): run `forge db migrate`"
            )
        case None if isinstance(error, sqlite3.ProgrammingError):
            found = Unavailable(f"{path} is closed")
        case _:
            found = StoreError(f"{path}: {type(error).__name__}: {error}")
    return found


def _broken(error: sqlite3.Error, path: str, committing: bool) -> StoreError:
    if _no_room(path):
        return _full(path)
    if committing:
        return Unknown(f"{path} could not be written for certain: {error}")
    return Unavailable(f"{path} could not be read or written: {error}")


def _full(path: str) -> Full:
    return Full(f"no room left on the disk of {path}; nothing was stored: free some space")


def _no_room(path: str) -> bool:
    try:
        found = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _MIN_ROOM
