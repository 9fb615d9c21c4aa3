"""Maintenance of the database file: schema, diagnosis, removal. Needs no open store."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from typing import Final

from forge_jobs.core.errors import ForgeError
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.store import Finding, SchemaStatus, Severity, StoreSize

from . import processes, schema
from .error_mapping import translated
from .io.blocking import run_blocking
from .io.connection import MIN_SQLITE, connect
from .os import liveness_file
from .os.database_file import DatabaseFile, file_system
from .os.fork import FORK_GUARD
from .os.liveness_file import LivenessFiles

# Versions before this one can damage a database when two connections write and checkpoint at the
# same instant. The fair lock prevents that between our own processes, not for other programs.
_WAL_RESET_FIXED: Final = (3, 51, 3)
_WAL_LARGE: Final = 256 << 20


class SqliteMaintenance:
    """See ``forge_jobs.store.store`` for the contract of each method."""

    def __init__(
        self,
        database: DatabaseFile,
        clock: Clock,
        entropy: Entropy,
        synchronous: str,
        close: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._synchronous = synchronous
        self._close = close

    async def migrate(self) -> SchemaStatus:
        return await run_blocking(self._migrate)

    def _migrate(self) -> SchemaStatus:
        with FORK_GUARD.use(self._database.path):
            return schema.migrate(self._database, self._clock, self._entropy)[0]

    async def schema_status(self) -> SchemaStatus:
        if not self._database.exists():
            return SchemaStatus(None, schema.WANTED)
        return await run_blocking(self._read_schema)

    def _read_schema(self) -> SchemaStatus:
        with FORK_GUARD.use(self._database.path):
            return schema.read_schema(self._database, self._clock)[0]

    async def drop(self) -> None:
        await run_blocking(self._drop)

    def _drop(self) -> None:
        self._close()
        with FORK_GUARD.use(self._database.path):
            if schema.drop_own_tables(self._database, self._clock):
                self._database.remove_directory()
                return
        self._database.remove()

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        return await run_blocking(lambda: self._examine(deep))

    def _examine(self, deep: bool) -> list[Finding]:
        with FORK_GUARD.use(self._database.path):
            return list(self._findings(deep))

    async def size(self) -> StoreSize:
        found = await run_blocking(self._database.sizes)
        parts = sorted(found.items(), key=lambda part: -part[1])
        return StoreSize(total=sum(found.values()), log=found.get("wal", 0), parts=tuple(parts))

    def describe(self) -> dict[str, str]:
        return {
            "backend": "sqlite",
            "place": self._database.path,
            "sqlite": sqlite3.sqlite_version,
            "synchronous": self._synchronous,
            "schema": str(schema.WANTED),
        }

    def _findings(self, deep: bool) -> Iterator[Finding]:
        yield self._version_finding()
        if not self._database.exists():
            yield Finding(
                Severity.ERROR, "file", f"{self._database.path} does not exist", "forge db create"
            )
            return
        yield from self._file_findings()
        try:
            connection = connect(self._database.path, self._clock)
        except ForgeError as error:
            yield Finding(Severity.ERROR, "file", str(error))
            return
        try:
            yield from self._database_findings(connection, deep)
        except sqlite3.Error as error:
            yield Finding(Severity.ERROR, "database", str(translated(error, self._database.path)))
        finally:
            connection.close()

    def _version_finding(self) -> Finding:
        found = sqlite3.sqlite_version
        if sqlite3.sqlite_version_info < MIN_SQLITE:
            minimum = ".".join(map(str, MIN_SQLITE))
            cure = f"use a Python with SQLite {minimum} or later"
            return Finding(Severity.ERROR, "sqlite", f"version {found} is too old", cure)
        if sqlite3.sqlite_version_info < _WAL_RESET_FIXED:
            return Finding(
                Severity.WARNING,
                "sqlite",
                f"version {found} has the rare WAL-reset bug, which can damage a file when other "
                "programs write to it at the same instant; our own processes take turns",
                "let no other program checkpoint this file, or use SQLite 3.51.3 or later",
            )
        return Finding(Severity.OK, "sqlite", f"version {found}")

    def _file_findings(self) -> Iterator[Finding]:
        path = self._database.path
        kind = file_system(os.path.dirname(path))
        yield Finding(Severity.OK, "file system", kind or "unknown")
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            yield Finding(
                Severity.WARNING,
                "file mode",
                f"{path} has mode {mode:04o}: others may read or write jobs",
                f"chmod 600 {path}",
            )
        else:
            yield Finding(Severity.OK, "file mode", f"{mode:04o}")
        wal = self._database.sizes().get("wal", 0)
        if wal > _WAL_LARGE:
            yield Finding(
                Severity.WARNING,
                "write-ahead log",
                f"{wal >> 20} MB: a program keeps an old read transaction open",
                "end long transactions of other programs on this file",
            )
        else:
            yield Finding(Severity.OK, "write-ahead log", f"{wal >> 10} KB")

    def _database_findings(self, connection: sqlite3.Connection, deep: bool) -> Iterator[Finding]:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal":
            yield Finding(Severity.OK, "journal mode", mode)
        else:
            yield Finding(
                Severity.ERROR, "journal mode", f"{mode} instead of wal", "forge db migrate"
            )
        yield Finding(
            Severity.OK,
            "durability",
            "every stored job is on the disk before it is acknowledged"
            if self._synchronous != "normal"
            else "synchronous=normal: a power cut may take back the last jobs",
        )
        found = schema.status(connection.execute)
        try:
            schema.check(self._database, found)
            yield Finding(Severity.OK, "schema", f"version {found.current}")
        except ForgeError as error:
            yield Finding(Severity.ERROR, "schema", str(error), "forge db migrate")
            return
        if deep:
            yield _check_integrity(connection)
        yield self._workers_finding(connection)

    def _workers_finding(self, connection: sqlite3.Connection) -> Finding:
        presumed_alive = connection.execute(processes.SQL["presumed_alive"]).fetchall()
        liveness = LivenessFiles(self._database, self._clock)
        dead = processes.find_dead(liveness, presumed_alive, self._clock.now())
        hosts = {host_id for _, host_id in presumed_alive}
        stale = set(liveness_file.host_ids(self._database)) - hosts
        alive = len(presumed_alive)
        if dead:
            return Finding(
                Severity.WARNING,
                "workers",
                f"{alive - len(dead)} alive, {len(dead)} dead but still registered",
                "any worker takes over their jobs; start one",
            )
        return Finding(Severity.OK, "workers", f"{alive} alive, {len(stale)} stale liveness files")


def _check_integrity(connection: sqlite3.Connection) -> Finding:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict == "ok":
        return Finding(Severity.OK, "integrity", "quick check passed")
    return Finding(Severity.ERROR, "integrity", verdict, "restore a backup")
