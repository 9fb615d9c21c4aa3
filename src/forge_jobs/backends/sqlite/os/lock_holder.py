"""Finds the process that holds SQLite's write lock, to name it in an error. Linux only."""

import os
from contextlib import suppress
from typing import Final

from .database_file import DatabaseFile

_LOCKS: Final = "/proc/locks"
# The bytes that SQLite locks to write: in the -shm file with a write-ahead log, else in the file.
_WAL_WRITE_BYTE: Final = 120
_RESERVED_BYTE: Final = 0x40000001


def write_lock_holder(database: DatabaseFile) -> int | None:
    """The id of the process that has a write transaction open; None if that is not known.

    Read from the kernel's table: opening the files to ask for their locks would drop the locks of
    this process when they are closed.
    """
    bytes_by_inode: dict[int, int] = {}
    for path, byte in ((f"{database.path}-shm", _WAL_WRITE_BYTE), (database.path, _RESERVED_BYTE)):
        with suppress(OSError):
            bytes_by_inode[os.stat(path).st_ino] = byte
    try:
        with open(_LOCKS, encoding="ascii") as table:
            lines = table.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        fields = line.split()
        if len(fields) != 8 or fields[1] != "POSIX" or fields[3] != "WRITE":
            continue
        _, _, _, _, pid, file, first, last = fields
        byte = bytes_by_inode.get(int(file.rpartition(":")[2]))
        if byte is not None and int(first) <= byte and (last == "EOF" or byte <= int(last)):
            return int(pid)
    return None


def blocked_text(database: DatabaseFile) -> str:
    """Who has kept this process from writing, and the remedy."""
    holder = write_lock_holder(database)
    if holder == os.getpid():
        return (
            f"this process itself has a write transaction open on {database.path}, on a connection "
            "of its own (sqlite3, SQLAlchemy): pass that connection as tx=, or commit first"
        )
    if holder:
        return (
            f"process {holder} has been writing to {database.path} for too long: end its "
            "transaction"
        )
    return (
        f"another program has been writing to {database.path} for too long: end its transaction; "
        "if it is this program's own, pass its connection as tx="
    )
