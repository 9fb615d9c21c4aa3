"""Reads the store of a storm with plain SQL: registered processes and the state of jobs.

It uses its own connection and no code of the library.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

from rigs.storms.checks import Row
from tests.postgres.server import PrivateServer, private_server

Found = list[tuple[object, ...]]


class Database(Protocol):
    """The database of a storm. ``query`` returns no rows while the database is unavailable."""

    url: str
    jobs: str
    processes: str
    counted: str

    def query(self, sql: str) -> Found: ...

    def close(self) -> None: ...


class SqliteDatabase:
    """One file."""

    jobs = "SELECT id, CAST(payload AS TEXT), status, attempts, owner FROM forge_jobs"
    processes = "SELECT pid FROM forge_processes"
    counted = (
        "SELECT coalesce(sum(d), 0) FROM (SELECT data ->> 'done' AS d FROM forge_minutes UNION ALL"
        " SELECT value ->> 'done' FROM forge_counter_entries, json_each(data))"
    )

    def __init__(self, file: Path) -> None:
        self.url = f"sqlite:///{file}"
        self._file = file
        self._reader: sqlite3.Connection | None = None

    def query(self, sql: str) -> Found:
        if self._reader is None:
            if not self._file.exists():
                return []
            self._reader = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=10)
        try:
            return self._reader.execute(sql).fetchall()
        except sqlite3.OperationalError:
            # The first process is still creating the tables.
            return []

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class PostgresDatabase:
    """One schema. ``addresses`` are tried in order: a server may be down or a standby."""

    jobs = (
        "SELECT id, convert_from(payload, 'UTF8'), status, attempts, owner FROM forge.jobs"
        " UNION ALL"
        " SELECT id, convert_from(payload, 'UTF8'), status, attempts, owner FROM forge.history"
    )
    processes = "SELECT pid FROM forge.processes WHERE NOT dead"
    counted = (
        "SELECT coalesce(sum(done), 0)::bigint FROM ("
        " SELECT done FROM forge.minutes UNION ALL"
        " SELECT jobs FROM forge.counter_entries WHERE target = 'done') AS t"
    )

    def __init__(self, url: str, addresses: Sequence[str]) -> None:
        self.url = url
        self._addresses = addresses
        self._reader: psycopg.Connection | None = None

    def query(self, sql: str) -> Found:
        try:
            if self._reader is None:
                self._reader = self._connect()
            return self._reader.execute(sql.encode()).fetchall()
        except psycopg.errors.UndefinedTable:
            # The first process is still creating the tables.
            return []
        except psycopg.Error:
            self.close()
            return []

    def _connect(self) -> psycopg.Connection:
        last: psycopg.Error | None = None
        for address in self._addresses:
            try:
                made = psycopg.connect(address, autocommit=True, connect_timeout=5)
            except psycopg.Error as error:
                last = error
                continue
            if made.execute("SELECT pg_is_in_recovery()").fetchone() == (False,):
                return made
            made.close()
        raise last or psycopg.OperationalError("only standbys")

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def states(database: Database) -> dict[str, int]:
    """How many jobs are in which state."""
    found = database.query(f"SELECT status, count(*) FROM ({database.jobs}) AS j GROUP BY status")
    return {str(status): int(str(count)) for status, count in found}


def pids(database: Database) -> set[int]:
    """The pids of all registered workers."""
    return {int(str(pid)) for (pid,) in database.query(database.processes)}


def rows(database: Database) -> list[Row]:
    """All jobs."""
    return [
        Row(int(str(key)), json.loads(str(payload))["name"], str(status), int(str(attempts)),
            None if status != "running" else int(str(owner)))
        for key, payload, status, attempts, owner in database.query(database.jobs)
    ]  # fmt: skip


def done_counted(database: Database) -> int:
    """Successes by the database's own counters."""
    counted = database.query(database.counted)
    return int(str(counted[0][0])) if counted else 0


def on_server(server: PrivateServer) -> PostgresDatabase:
    """The database of a storm on one server."""
    return PostgresDatabase(server.url(), [server.url()])


@contextmanager
def open_database(backend: str, folder: Path) -> Iterator[Database]:
    """A new store that is removed afterwards (SQLite: with the folder)."""
    if backend == "sqlite":
        file = SqliteDatabase(folder / "storm.db")
        yield file
        file.close()
        return
    with private_server() as server:
        database = on_server(server)
        try:
            yield database
        finally:
            database.close()
