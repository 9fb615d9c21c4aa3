"""The metrics contract on SQLite: stored counters, plus jobs that are not ingested yet."""

import sqlite3
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.core.vitals import Vitals
from forge_jobs.store.metrics import MAX_HELD_READ

from . import breakdowns, queries, roll_up
from .counters import SQL
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer

_MAX_KEY: Final = (1 << 63) - 1
_entry_of = msgspec.json.Decoder(AuditEntry).decode


class SqliteMetrics:
    """Counters, samples, job logs and the audit; see ``forge_jobs.store.metrics``."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.tag = 0

    async def counts(self) -> list[Count]:
        return await self._reader.call(_counts)

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        return await self._reader.call(partial(_count, filter, cap))

    async def oldest_due(self) -> dict[str, Instant]:
        return await self._reader.call(_oldest_due)

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        return await self._reader.call(partial(roll_up.minutes, since, until, queue))

    async def totals(self) -> list[Minute]:
        return await self._reader.call(roll_up.totals)

    async def record_vitals(self, vitals: Vitals) -> None:
        await self._writer.call(partial(roll_up.record_vitals, vitals))

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        return await self._reader.call(partial(roll_up.vitals, since, until))

    async def logs(self, job_id: str) -> list[LogLine]:
        return await self._reader.call(
            lambda connection: queries.logs(connection, job_id, self.tag)
        )

    async def roll_up(self, *, limit: int) -> bool:
        ingested, top_key, has_entries = await self._reader.call(_backlog)
        if not has_entries and top_key <= ingested:
            return False
        return await self._writer.call(partial(_roll_up, limit))

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        return await self._writer.call(partial(_purge, before, max(limit, 0)))

    async def stamp(self) -> str:
        return await self._reader.call(_stamp)

    async def record_action(self, entry: AuditEntry) -> None:
        await self._writer.call(partial(_add_action, entry))

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        return await self._reader.call(partial(_actions, after, max(limit, 0)))

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        return await self._writer.call(partial(_purge_actions, before, max(limit, 0)))


def _roll_up(limit: int, tx: Tx) -> bool:
    tx.ingest()
    tx.write_counters()
    return roll_up.roll_up(tx.execute, limit)


def _purge(before: Instant, limit: int, tx: Tx) -> int:
    breakdowns.purge(tx.execute, before, limit)
    return sum(
        tx.execute(SQL[name], (before, limit)).rowcount
        for name in ("purge_minutes", "purge_vitals")
    )


def _add_action(entry: AuditEntry, tx: Tx) -> None:
    tx.execute(SQL["add_action"], (entry.at, msgspec.json.encode(entry).decode()))


def _actions(after: int | None, limit: int, connection: sqlite3.Connection) -> list[AuditEntry]:
    found = connection.execute(SQL["actions"], (_MAX_KEY if after is None else after, limit))
    return [replace(_entry_of(data), id=number) for number, data in found.fetchall()]


def _purge_actions(before: Instant, limit: int, tx: Tx) -> int:
    return tx.execute(SQL["purge_actions"], (before, limit)).rowcount


def _stamp(connection: sqlite3.Connection) -> str:
    # data_version values of two connections cannot be compared.
    return f"{id(connection)} {connection.execute('PRAGMA data_version').fetchone()[0]}"


def _backlog(connection: sqlite3.Connection) -> tuple[int, int, int]:
    return connection.execute(SQL["backlog"]).fetchone()


def _counts(connection: sqlite3.Connection) -> list[Count]:
    rows = connection.execute(SQL["counts"]).fetchall()
    return [Count(queue, JobStatus(status), jobs) for queue, status, jobs in rows]


def _count(wanted: Filter, cap: int, connection: sqlite3.Connection) -> CappedCount:
    return queries.count(connection.execute, wanted, cap)


def _oldest_due(connection: sqlite3.Connection) -> dict[str, Instant]:
    return dict(connection.execute(SQL["oldest_due"], (MAX_HELD_READ,)).fetchall())
