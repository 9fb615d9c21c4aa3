"""Creates and upgrades the schema; safe when many processes start at once."""

import sqlite3
from collections.abc import Callable
from typing import Final

from forge_jobs.backends.shared import migrations
from forge_jobs.core.errors import Unavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.store import SchemaStatus

from .error_mapping import is_busy, translated
from .io.connection import connect
from .os.database_file import DatabaseFile
from .os.fair_lock import FairLock
from .os.lock_holder import blocked_text

MIGRATIONS: Final = migrations.load("forge_jobs.backends.sqlite.migrations")
WANTED: Final = len(MIGRATIONS)
COMPATIBLE: Final = migrations.compatible(MIGRATIONS)
_MAX_TRIES: Final = 500
_RETRY_PAUSE_S: Final = 0.01
Execute = Callable[..., sqlite3.Cursor]


def status(execute: Execute) -> SchemaStatus:
    """Which schema the database holds."""
    known = execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'forge_schema'"
    ).fetchone()
    if known is None:
        return SchemaStatus(None, WANTED)
    current, compatible = execute(
        "SELECT max(number), max(number * breaking) FROM forge_schema"
    ).fetchone()
    return SchemaStatus(current, WANTED, compatible or 0)


def check(database: DatabaseFile, found: SchemaStatus) -> None:
    """SchemaMismatch unless this code can use the schema of the database."""
    migrations.check(str(database.path), found)


def read_schema(database: DatabaseFile, clock: Clock) -> tuple[SchemaStatus, int]:
    """The schema of an existing database and its tag."""
    found, tag, _ = _read_schema(database, clock)
    return found, tag


def _read_schema(database: DatabaseFile, clock: Clock) -> tuple[SchemaStatus, int, bool]:
    """The same, and whether the database is in WAL mode."""
    if not database.exists():
        raise Unavailable(f"{database.path} does not exist: run `forge db create`")
    connection = connect(database.path, clock)
    try:
        for _ in range(_MAX_TRIES):
            try:
                found = status(connection.execute)
                (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
                return found, tag_of(connection.execute) if found.current else 0, mode == "wal"
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise translated(error, database.path) from error
                clock.pause(_RETRY_PAUSE_S)
        raise _busy(database)
    finally:
        connection.close()


def migrate(database: DatabaseFile, clock: Clock, entropy: Entropy) -> tuple[SchemaStatus, int]:
    """Create the database if need be and apply what is missing; the schema and the tag after it."""
    database.prepare()
    found, tag, has_log = _read_schema(database, clock)
    migrations.check(str(database.path), found, may_migrate=True)
    if found.is_complete and has_log:
        # The usual case needs no lock: a user's own transaction must not keep a store from opening.
        return found, tag
    fair_lock = FairLock(database.directory, clock)
    try:
        fair_lock.open()
        fair_lock.acquire()
        connection = connect(database.path, clock, synchronous="full")
        try:
            for _ in range(_MAX_TRIES):
                try:
                    return _migrate(database, connection, clock, entropy)
                except sqlite3.Error as error:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    if not is_busy(error):
                        raise translated(error, database.path) from error
                    clock.pause(_RETRY_PAUSE_S)
            raise _busy(database)
        finally:
            connection.close()
    finally:
        try:
            fair_lock.release()
        finally:
            fair_lock.close()


def _migrate(
    database: DatabaseFile, connection: sqlite3.Connection, clock: Clock, entropy: Entropy
) -> tuple[SchemaStatus, int]:
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("BEGIN IMMEDIATE")
    found = status(connection.execute)
    if found.is_too_new:
        connection.execute("ROLLBACK")
        check(database, found)
    _apply(connection.execute, found, clock, entropy)
    connection.execute("COMMIT")
    return status(connection.execute), tag_of(connection.execute)


def join(
    database: DatabaseFile, execute: Execute, clock: Clock, entropy: Entropy, *, may_migrate: bool
) -> int:
    """The tag of the database, read inside a user's transaction; creates missing tables in it."""
    found = status(execute)
    migrations.check(str(database.path), found, may_migrate=may_migrate)
    if not found.is_complete:
        _apply(execute, found, clock, entropy)
    return tag_of(execute)


def drop_own_tables(database: DatabaseFile, clock: Clock) -> bool:
    """Drop our tables from a file that holds tables of others as well, such as the application's.
    False, and nothing is changed, if there are none."""
    if not database.exists():
        return False
    connection = connect(database.path, clock)
    try:
        for _ in range(_MAX_TRIES):
            try:
                return _drop_own_tables(connection)
            except sqlite3.Error as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if not is_busy(error):
                    raise translated(error, database.path) from error
                clock.pause(_RETRY_PAUSE_S)
        raise _busy(database)
    finally:
        connection.close()


def _drop_own_tables(connection: sqlite3.Connection) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    names = [name for (name,) in tables if not name.startswith("sqlite_")]
    ours = [name for name in names if name.startswith("forge_")]
    has_others = len(ours) < len(names)
    if has_others:
        for name in ours:
            connection.execute(f'DROP TABLE "{name}"')
    connection.execute("COMMIT")
    return has_others


def _apply(execute: Execute, found: SchemaStatus, clock: Clock, entropy: Entropy) -> None:
    """Apply the migrations that are missing, inside the transaction that is open."""
    execute(
        "CREATE TABLE IF NOT EXISTS forge_schema ("
        "number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL, "
        "breaking INTEGER NOT NULL)"
    )
    for step in MIGRATIONS[found.current or 0 :]:
        for statement in _statements(step.text):
            execute(statement)
        execute(
            "INSERT INTO forge_schema (number, name, applied_at, breaking) VALUES (?, ?, ?, ?)",
            (step.number, step.name, clock.now(), step.breaking),
        )
    execute(
        "INSERT OR IGNORE INTO forge_meta (id, ingested, control_version, tag) VALUES (1, 0, 0, ?)",
        (entropy.bits(16),),
    )


def tag_of(execute: Execute) -> int:
    """The tag of the database that a connection leads to."""
    (tag,) = execute("SELECT tag FROM forge_meta").fetchone()
    return tag


def _busy(database: DatabaseFile) -> Unavailable:
    return Unavailable(blocked_text(database))


def _statements(text: str) -> list[str]:
    plain = "\n".join(line.split("--", 1)[0] for line in text.splitlines())
    return [statement for part in plain.split(";") if (statement := part.strip())]
