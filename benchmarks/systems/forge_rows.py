"""Our own tables seen from outside: is work left, how many rows, and millions of copies of a row.

This is the one module of the benchmark that knows the SQLite schema. The parent uses it, in a
process that never opens the store through the library.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

FILE = "forge.db"
HOT = "jobs"  # what is not yet finished
HISTORY = "history"  # what is
KEY = "id"
POLL_SECONDS = 0.002


def path_in(store: Path) -> Path:
    return store / FILE


def url(store: Path, synchronous: str) -> str:
    """FULL is the default and therefore not spelled out: the default is what is measured."""
    plain = f"sqlite:///{path_in(store)}"
    return plain if synchronous == "full" else f"{plain}?synchronous={synchronous}"


def connect(store: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path_in(store)}?mode=ro", uri=True, isolation_level=None)


def await_empty(store: Path, seconds: float) -> float:
    """Look every 2 ms until no unfinished job is committed; the instant on the shared clock."""
    connection = connect(store)
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            (left,) = connection.execute(f"SELECT EXISTS (SELECT 1 FROM {HOT})").fetchone()
            if not left:
                return time.monotonic()
            time.sleep(POLL_SECONDS)
        (count,) = connection.execute(f"SELECT count(*) FROM {HOT}").fetchone()
    finally:
        connection.close()
    raise TimeoutError(f"ours: {count} jobs unfinished after {seconds:.0f} s")


def counts(store: Path) -> dict[str, int]:
    connection = connect(store)
    try:
        (waiting,) = connection.execute(f"SELECT count(*) FROM {HOT}").fetchone()
        (finished,) = connection.execute(f"SELECT count(*) FROM {HISTORY}").fetchone()
    finally:
        connection.close()
    return {"waiting": waiting, "finished": finished}


def multiply(store: Path, table: str, key: int, copies: int, first: int) -> None:
    """Insert `copies` rows like the one with `key`, under keys from `first` upwards."""
    connection = sqlite3.connect(path_in(store), isolation_level=None)
    try:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        names = ", ".join(columns)
        values = ", ".join(":first + i" if name == KEY else f"t.{name}" for name in columns)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :copies)"
            f" INSERT INTO {table} ({names}) SELECT {values} FROM n, {table} AS t"
            f" WHERE t.{KEY} = :key",
            {"copies": copies, "first": first, "key": key},
        )
        connection.execute("COMMIT")
    finally:
        connection.close()


def keys(store: Path, table: str) -> list[int]:
    """All keys of a small table, in order."""
    connection = connect(store)
    try:
        return [key for (key,) in connection.execute(f"SELECT {KEY} FROM {table} ORDER BY {KEY}")]
    finally:
        connection.close()
