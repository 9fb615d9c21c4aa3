"""Our own tables seen from outside: is work left, how many rows, do the counters agree with them,
and millions of copies of a row.

This is the one module of the benchmark that knows the SQLite schema. The parent uses it, in a
process that never opens the store through the library.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

FILE = "forge.db"
TABLE = "forge_jobs"
FINISHED = ("done", "dead", "cancelled")
POLL_SECONDS = 0.002
# Copies follow each other by a microsecond, as jobs do that were enqueued one after the other.
MOVING = ("run_at", "enqueued_at", "started_at", "finished_at", "due_at")


def path_in(store: Path) -> Path:
    return store / FILE


def url(store: Path, synchronous: str) -> str:
    """`default` is what a user gets who names no level; the others are spelled out."""
    plain = f"sqlite:///{path_in(store)}"
    return plain if synchronous == "default" else f"{plain}?synchronous={synchronous}"


def connect(store: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path_in(store)}?mode=ro", uri=True, isolation_level=None)


def await_empty(store: Path, seconds: float) -> float:
    """Look every 2 ms until no unfinished job is committed; the instant on the shared clock.

    Five partial indexes hold every unfinished job of these runs, and nothing else.
    """
    connection = connect(store)
    unfinished = _unfinished(connection)
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not connection.execute(unfinished).fetchone()[0]:
                return time.monotonic()
            time.sleep(POLL_SECONDS)
    finally:
        connection.close()
    raise TimeoutError(f"ours: after {seconds:.0f} s there are {by_status(store)}")


def _is_from_before_0_1(connection: sqlite3.Connection) -> bool:
    """Whether the store was made by an unreleased commit with the first names of the columns."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'forge_marks'").fetchone()
    return found is not None


def _last_ingested(connection: sqlite3.Connection) -> str:
    if _is_from_before_0_1(connection):
        return "SELECT folded FROM forge_marks"
    return "SELECT ingested FROM forge_meta"


def _unfinished(connection: sqlite3.Connection) -> str:
    """The statement that says whether unfinished jobs are left, by partial indexes."""
    if _is_from_before_0_1(connection):
        indexes = {"busy": "status = 'running'", "claim": "line IS NOT NULL",
                   "side": "side IS NOT NULL", "lot": "lot IS NOT NULL"}  # fmt: skip
    else:
        indexes = {"running": "status = 'running'", "claim": "claimable IS NOT NULL",
                   "track": "claim_track IS NOT NULL", "bucket": "bucket IS NOT NULL"}  # fmt: skip
    indexes["due"] = "due_at IS NOT NULL"
    found = [
        f"EXISTS (SELECT 1 FROM {TABLE} INDEXED BY forge_jobs_{name} WHERE {condition})"
        for name, condition in indexes.items()
    ]
    found.append(f"EXISTS (SELECT 1 FROM {TABLE} WHERE id > ({_last_ingested(connection)}))")
    return f"SELECT {' OR '.join(found)}"


def by_status(store: Path) -> dict[str, int]:
    """Rows by state, counted row by row."""
    connection = connect(store)
    try:
        return dict(connection.execute(f"SELECT status, count(*) FROM {TABLE} GROUP BY status"))
    finally:
        connection.close()


def counts(store: Path) -> dict[str, int]:
    """Unfinished and finished rows, counted row by row."""
    rows = by_status(store)
    finished = sum(rows.get(status, 0) for status in FINISHED)
    return {"waiting": sum(rows.values()) - finished, "finished": finished}


def state(store: Path) -> dict[str, int]:
    """Rows by state, their `attempts`, the dedupe `keys` that are taken and the `steps`; without
    zeros."""
    connection = connect(store)
    try:
        steps = _steps(connection)
        [attempts] = connection.execute(
            f"SELECT coalesce(sum(attempts), 0) FROM {TABLE}"
        ).fetchone()
        [keys] = connection.execute("SELECT count(*) FROM forge_dedupe").fetchone()
    finally:
        connection.close()
    found = {**by_status(store), "attempts": attempts, "keys": keys, "steps": steps}
    return {name: number for name, number in found.items() if number}


def _steps(connection: sqlite3.Connection) -> int:
    """How many steps are stored; none where an earlier commit knows no steps."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'forge_steps'").fetchone()
    if known is None:
        return 0
    return connection.execute("SELECT count(*) FROM forge_steps").fetchone()[0]


def discord(store: Path) -> list[str]:
    """Where our own counters differ from the rows: empty, or one sentence."""
    connection = connect(store)
    try:
        found = connection.execute(
            "SELECT status, sum(jobs) FROM ("
            " SELECT status, jobs FROM forge_counts UNION ALL"
            f" SELECT status, 1 FROM {TABLE} WHERE id > ({_last_ingested(connection)})"
            ") GROUP BY status HAVING sum(jobs) <> 0"
        )
        counted = dict(found)
    finally:
        connection.close()
    rows = by_status(store)
    return [] if counted == rows else [f"the counters say {counted}, the rows are {rows}"]


def multiply(store: Path, copies: int) -> None:
    """Beside every row `copies` more like it, made inside SQLite; the counters follow."""
    connection = sqlite3.connect(path_in(store), isolation_level=None)
    try:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({TABLE})")]
        keys = [key for (key,) in connection.execute(f"SELECT id FROM {TABLE} ORDER BY id")]
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("BEGIN IMMEDIATE")
        # The next ingest makes a job claimable that was stored alone; done by hand here.
        connection.execute(f"UPDATE {TABLE} SET claimable = 1 WHERE status = 'pending'")
        for place, key in enumerate(keys):
            insert_copies(connection, columns, key, copies, max(keys) + 1 + place * copies)
        connection.execute("DELETE FROM forge_counts")
        connection.execute(
            "INSERT INTO forge_counts (queue, kind, status, jobs)"
            f" SELECT queue, kind, status, count(*) FROM {TABLE} GROUP BY queue, kind, status"
        )
        connection.execute(f"UPDATE forge_meta SET ingested = (SELECT max(id) FROM {TABLE})")
        connection.execute("COMMIT")
    finally:
        connection.close()


def insert_copies(
    connection: sqlite3.Connection, columns: list[str], key: int, copies: int, first: int
) -> None:
    """Insert `copies` rows like the one with `key`, under keys from `first` upwards."""
    names = ", ".join(columns)
    values = ", ".join(
        ":first + i" if name == "id" else f"t.{name} + i" if name in MOVING else f"t.{name}"
        for name in columns
    )
    connection.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :copies)"
        f" INSERT INTO {TABLE} ({names}) SELECT {values} FROM n, {TABLE} AS t WHERE t.id = :key",
        {"copies": copies, "first": first, "key": key},
    )
