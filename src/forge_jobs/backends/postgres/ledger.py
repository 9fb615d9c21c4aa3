"""The ledger contract on Postgres: the books are appended to by every move and folded by a tick."""

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.select import Filter
from forge_jobs.core.tally import CappedCount, Count, Minute

from . import rows, sqlfiles
from .looks import Looks, filter_values
from .rows import KEY_MOST
from .session import Link, Server


class PostgresLedger:
    """What was counted and said; see ``forge_jobs.store.ledger``."""

    def __init__(self, server: Server, looks: Looks) -> None:
        self._server = server
        self._looks = looks
        self._sql = sqlfiles.statements("ledger", server.address.schema)
        self._logs = sqlfiles.statements("looks", server.address.schema)["logs"]
        self._newest = sqlfiles.statements("bulk", server.address.schema)["newest"]

    async def counts(self) -> list[Count]:
        found = await self._server.ask(self._sql["counts"], writes=False)
        return [Count(row[0], rows.status_of(row[1]), row[2]) for row in found]

    async def count(self, filter: Filter, *, cap: int) -> CappedCount:
        if _is_plain(filter):
            _, queue, kind, states, *_ = filter_values(filter, 0, 0)
            row = await self._server.ask_row(
                self._sql["count_plain"], queue, kind, states, writes=False
            )
            found = 0 if row is None else row[0]
        else:
            values = filter_values(filter, KEY_MOST, cap + 1)
            found = len(await self._server.ask(self._newest, *values, writes=False))
        return CappedCount(min(found, cap), found > cap)

    async def oldest_due(self) -> dict[str, Instant]:
        found = await self._server.ask(self._sql["oldest_due"], writes=False)
        return {row[0]: row[1] for row in found}

    async def minutes(
        self, *, since: Instant, until: Instant, queue: str | None = None
    ) -> list[Minute]:
        found = await self._server.ask(self._sql["minutes"], since, until, queue, writes=False)
        return [
            Minute(
                at=row["at"],
                queue=row["queue"],
                kind=row["kind"],
                enqueued=row["enqueued"],
                done=row["done"],
                retried=row["retried"],
                dead=row["dead"],
                cancelled=row["cancelled"],
                ran_s=row["ran_s"],
            )
            for row in found
        ]

    async def logs(self, job_id: str) -> list[LogLine]:
        async def work(link: Link) -> list[LogLine]:
            [key] = await self._looks.keys_of(link, [job_id])
            if key is None:
                return []
            return [LogLine(row[0], row[1], row[2]) for row in await link.fetch(self._logs, key)]

        return await self._server.within(work, writes=False)

    async def fold(self, *, limit: int) -> bool:
        row = await self._server.ask_row(self._sql["fold"], limit)
        return row is not None and row[0] >= limit

    async def purge_minutes(self, *, before: Instant, limit: int) -> int:
        return len(await self._server.ask(self._sql["purge_minutes"], before, max(limit, 0)))


def _is_plain(wanted: Filter) -> bool:
    """Whether the books alone can count this filter."""
    return (
        wanted.tag is None
        and wanted.dedupe_key is None
        and wanted.error is None
        and wanted.enqueued_from is None
        and wanted.enqueued_until is None
    )
