"""The metrics contract on Postgres.

Every transition appends a counter entry; a periodic service rolls the entries up into counters,
minutes and totals.
"""

import msgspec
from msgspec.structs import replace

from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import CappedCount, Count, Minute, group_minutes, sum_totals
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.selection import Filter
from forge_jobs.core.vitals import Vitals, lifetime_part, merge_vitals
from forge_jobs.store.metrics import MAX_HELD_READ

from . import roll_up, rows, sql_files
from .breakdowns import PostgresBreakdowns
from .connection.server import Link, Server
from .queries import Queries
from .rows import MAX_KEY

_entry_of = msgspec.json.Decoder(AuditEntry).decode
_vitals_of = msgspec.json.Decoder(Vitals).decode


class PostgresMetrics:
    """Counters, minutes, vitals, job logs and the audit; see ``forge_jobs.store.metrics``."""

    def __init__(self, server: Server, queries: Queries, breakdowns: PostgresBreakdowns) -> None:
        self._breakdowns = breakdowns
        self._server = server
        self._queries = queries
        self._sql = sql_files.statements("metrics", server.address.schema)
        self._logs = sql_files.statements("queries", server.address.schema)["job_logs"]

    async def counts(self) -> list[Count]:
        found = await self._server.ask(self._sql["counts"], writes=False)
        return [Count(row[0], rows.status_of(row[1]), row[2]) for row in found]

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        return await self._queries.count(filter, cap)

    async def oldest_due(self) -> dict[str, Instant]:
        found = await self._server.ask(self._sql["oldest_due"], MAX_HELD_READ, writes=False)
        return {row[0]: row[1] for row in found}

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        found = await self._server.ask(self._sql["minutes"], since, until, queue, writes=False)
        return group_minutes(filter(roll_up.is_not_empty, map(roll_up.read_minute, found)))

    async def totals(self) -> list[Minute]:
        found = await self._server.ask(self._sql["totals"], writes=False)
        return sum_totals(filter(roll_up.is_not_empty, map(roll_up.read_minute, found)))

    async def record_vitals(self, vitals: Vitals) -> None:
        async def work(link: Link) -> None:
            for part in (vitals, lifetime_part(vitals)):
                empty = rows.as_json(Vitals(at=part.at, host_id=part.host_id))
                # All processes share the row of the lifetime: it must exist before it is locked.
                await link.fetch(self._sql["create_vitals"], part.at, part.host_id, empty)
                known = await link.row(self._sql["lock_vitals"], part.at, part.host_id)
                assert known is not None
                merged = rows.as_json(merge_vitals([_vitals_of(known["sample"]), part]))
                await link.fetch(self._sql["update_vitals"], part.at, part.host_id, merged)

        await self._server.within(work)

    async def vitals(self, *, since: Instant, until: Instant) -> list[Vitals]:
        found = await self._server.ask(self._sql["vitals"], since, until, writes=False)
        return [_vitals_of(row["sample"]) for row in found]

    async def logs(self, job_id: str) -> list[LogLine]:
        async def work(link: Link) -> list[LogLine]:
            [key] = await self._queries.keys_of(link, [job_id])
            if key is None:
                return []
            return [LogLine(row[0], row[1], row[2]) for row in await link.fetch(self._logs, key)]

        return await self._server.within(work, writes=False)

    async def roll_up(self, *, limit: int) -> bool:
        any_entry = await self._server.ask_row(self._sql["any_entry"], writes=False) is not None
        any_tag = await self._breakdowns.has_entries()
        if not any_entry and not any_tag:
            return False

        async def work(link: Link) -> int:
            entries = await link.fetch(self._sql["take_entries"], max(limit, 1))
            changes, parts = roll_up.deltas(entries), roll_up.parts(entries)
            if changes:
                await link.fetch(self._sql["add_counters"], rows.as_json(changes))
            if parts:
                minutes = [roll_up.as_row(part) for part in group_minutes(parts)]
                totals = [roll_up.as_row(part) for part in sum_totals(parts)]
                await link.fetch(self._sql["add_minutes"], rows.as_json(minutes))
                await link.fetch(self._sql["add_totals"], rows.as_json(totals))
                await self._breakdowns.add_periods(link, parts)
            # Its lock comes last: who holds it waits for no other roll-up.
            tags = await self._breakdowns.roll_up_tags(link, max(limit, 1)) if any_tag else 0
            return max(len(entries), tags)

        return await self._server.within(work) >= limit

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        max_rows = max(limit, 0)
        await self._breakdowns.purge(before, max_rows)
        minutes = await self._server.ask(self._sql["purge_minutes"], before, max_rows)
        return len(minutes) + len(
            await self._server.ask(self._sql["purge_vitals"], before, max_rows)
        )

    async def stamp(self) -> str:
        row = await self._server.ask_row(self._sql["stamp"], writes=False)
        return "" if row is None else str(row["stamp"])

    async def record_action(self, entry: AuditEntry) -> None:
        encoded = msgspec.json.encode(entry).decode()
        await self._server.ask(self._sql["add_audit_entry"], entry.at, encoded)

    async def actions(self, *, limit: int, after: int | None = None) -> list[AuditEntry]:
        top = MAX_KEY if after is None else after
        found = await self._server.ask(self._sql["audit_entries"], top, max(limit, 0), writes=False)
        return [replace(_entry_of(row["entry"]), id=row["id"]) for row in found]

    async def purge_actions(self, *, before: Instant, limit: int) -> int:
        return len(await self._server.ask(self._sql["purge_audit"], before, max(limit, 0)))
