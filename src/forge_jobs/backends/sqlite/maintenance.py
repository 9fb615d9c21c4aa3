"""Looking after the file: schema, doctor, removal. None of this needs an open store."""

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
from .os.fork import GATE
from .os.liveness_file import Signs

# Versions before this one can damage a database when two connections write and checkpoint at the
# same instant; the turnstile keeps our own processes from doing so, nothing keeps others.
_WAL_RESET_FIXED: Final = (3, 51, 3)
_WAL_LARGE: Final = 256 << 20


class SqliteMaintenance:
    """Looking after the database itself."""

    def __init__(
        self,
        place: DatabaseFile,
        clock: Clock,
        entropy: Entropy,
        synchronous: str,
        close: Callable[[], None],
    ) -> None:
        self._place = place
        self._clock = clock
        self._entropy = entropy
        self._synchronous = synchronous
        self._close = close

    async def migrate(self) -> SchemaStatus:
        return await run_blocking(self._migrate)

    def _migrate(self) -> SchemaStatus:
        with GATE.using(self._place.path):
            return schema.migrate(self._place, self._clock, self._entropy)[0]

    async def schema_status(self) -> SchemaStatus:
        if not self._place.exists():
            return SchemaStatus(None, schema.WANTED)
        return await run_blocking(self._look)

    def _look(self) -> SchemaStatus:
        with GATE.using(self._place.path):
            return schema.read_schema(self._place, self._clock)[0]

    async def drop(self) -> None:
        await run_blocking(self._drop)

    def _drop(self) -> None:
        self._close()
        self._place.remove()

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        return await run_blocking(lambda: self._examine(deep))

    def _examine(self, deep: bool) -> list[Finding]:
        with GATE.using(self._place.path):
            return list(self._findings(deep))

    async def size(self) -> StoreSize:
        found = await run_blocking(self._place.sizes)
        parts = sorted(found.items(), key=lambda part: -part[1])
        return StoreSize(total=sum(found.values()), log=found.get("wal", 0), parts=tuple(parts))

    def describe(self) -> dict[str, str]:
        return {
            "backend": "sqlite",
            "place": self._place.path,
            "sqlite": sqlite3.sqlite_version,
            "synchronous": self._synchronous,
            "schema": str(schema.WANTED),
        }

    def _findings(self, deep: bool) -> Iterator[Finding]:
        yield self._version()
        if not self._place.exists():
            yield Finding(
                Severity.ERROR, "file", f"{self._place.path} does not exist", "forge db create"
            )
            return
        yield from self._files()
        try:
            connection = connect(self._place.path, self._clock)
        except ForgeError as error:
            yield Finding(Severity.ERROR, "file", str(error))
            return
        try:
            yield from self._database(connection, deep)
        except sqlite3.Error as error:
            yield Finding(Severity.ERROR, "database", str(translated(error, self._place.path)))
        finally:
            connection.close()

    def _version(self) -> Finding:
        found = sqlite3.sqlite_version
        if sqlite3.sqlite_version_info < MIN_SQLITE:
            least = ".".join(map(str, MIN_SQLITE))
            cure = f"use a Python with SQLite {least} or later"
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

    def _files(self) -> Iterator[Finding]:
        path = self._place.path
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
        wal = self._place.sizes().get("wal", 0)
        if wal > _WAL_LARGE:
            yield Finding(
                Severity.WARNING,
                "write-ahead log",
                f"{wal >> 20} MB: somebody keeps an old read transaction open",
                "end long transactions of other programs on this file",
            )
        else:
            yield Finding(Severity.OK, "write-ahead log", f"{wal >> 10} KB")

    def _database(self, connection: sqlite3.Connection, deep: bool) -> Iterator[Finding]:
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
        found = schema.status(connection)
        try:
            schema.check(self._place, found)
            yield Finding(Severity.OK, "schema", f"version {found.current}")
        except ForgeError as error:
            yield Finding(Severity.ERROR, "schema", str(error), "forge db migrate")
            return
        if deep:
            yield _integrity(connection)
        yield self._workers(connection)

    def _workers(self, connection: sqlite3.Connection) -> Finding:
        standing = connection.execute(processes.SQL["standing"]).fetchall()
        gone = processes.dead(Signs(self._place, self._clock), standing, self._clock.now())
        left = set(liveness_file.names(self._place)) - {host_id for _, host_id in standing}
        if gone:
            return Finding(
                Severity.WARNING,
                "workers",
                f"{len(standing) - len(gone)} alive, {len(gone)} without a sign of life",
                "any worker takes over their jobs; start one",
            )
        return Finding(
            Severity.OK, "workers", f"{len(standing)} alive, {len(left)} files of former ones"
        )


def _integrity(connection: sqlite3.Connection) -> Finding:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict == "ok":
        return Finding(Severity.OK, "integrity", "quick check passed")
    return Finding(Severity.ERROR, "integrity", verdict, "restore a backup")
