"""Reads jobs: one by id, pages by filter, states and results for waiting callers."""

from collections.abc import Sequence
from typing import Any, Final, assert_never

from forge_jobs.backends.shared import ordered_pages, pagination
from forge_jobs.backends.shared.ordered_pages import OrderedResult, Position, PositionsQuery
from forge_jobs.backends.shared.pagination import (
    CountersQuery,
    FilterCounts,
    KeyProbe,
    KeyRangeQuery,
    KeysQuery,
    MatchQuery,
    ScanQuery,
    ScanResult,
)
from forge_jobs.backends.shared.tracebacks import StoredTraceback, with_tracebacks
from forge_jobs.core import ids
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Cursor, Filter, Order, Page, check_order
from forge_jobs.core.status import LIVE, JobStatus
from forge_jobs.store.jobs import Peek

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .rows import MAX_KEY

# Sorting this many keys takes a few milliseconds.
_MAX_SORTED: Final = 50_000
_LAST_QUEUE: Final = chr(0x10FFFF)
# The states of the index ``jobs_due``.
_DUE_LATER: Final = (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.SUSPENDED)


class Queries:
    """Read-only queries. ``tag`` is the store's part of public job ids."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sql_files.statements("queries", server.address.schema)
        self._count_by_kind = sql_files.statements("metrics", server.address.schema)["count_plain"]
        self._enqueue_times = sql_files.statements("bulk", server.address.schema)["enqueue_times"]
        self.tag = 0

    async def get(self, job_id: str) -> JobRecord | None:
        if ids.is_short(job_id):
            row = await self._short_row(job_id)
        else:
            row_key = self.row_key(job_id)
            if row_key is None:
                return None
            row = await self._server.ask_row(self._sql["job"], str(row_key[0]), writes=False)
            if row is not None and row["enqueued_at"] // 1000 != row_key[1]:
                return None
        if row is None:
            return None
        record = rows.record(row, self.tag)
        if not record.errors:
            return record
        stored = await self._server.ask(self._sql["job_tracebacks"], record.key, writes=False)
        return with_tracebacks(record, [StoredTraceback(*found) for found in stored])

    async def _short_row(self, end: str) -> Row | None:
        """The newest job whose id ends so."""
        key_range = await self._server.ask_row(self._sql["key_range"], writes=False)
        newest = 0 if key_range is None else key_range[1] or 0
        keys = ids.short_keys(end, self.tag, newest)
        if not keys:
            return None
        return await self._server.ask_row(self._sql["job"], _joined(keys), writes=False)

    async def page(self, wanted: Filter, *, limit: int, after: Cursor | None, order: Order) -> Page:
        check_order(wanted, order)
        if order is not Order.NEWEST:
            return await self._ordered_page(wanted, limit, after, order)

        async def work(link: Link) -> Page:
            scanned = await self.newest(link, wanted, limit=limit, after=after)
            keys = scanned.keys
            found = await link.fetch(self._sql["job"], _joined(keys)) if keys else ()
            jobs = tuple(rows.record(row, self.tag) for row in found)
            return Page(jobs, self.cursor(scanned), scanned.stopped, scanned.rows_read)

        return await self._server.within(work, writes=False)

    async def _ordered_page(
        self, wanted: Filter, limit: int, after: Cursor | None, order: Order
    ) -> Page:
        place = ordered_pages.parse_cursor(self.tag, order, after)

        async def work(link: Link) -> Page:
            steps = ordered_pages.scan_in_order(wanted, order, limit=max(limit, 1), after=place)
            reply: Any = None
            await link.fetch(self._sql["index_scans_only"])
            try:
                while True:
                    query = steps.send(reply)
                    if isinstance(query, PositionsQuery):
                        reply = await self._positions(link, wanted, query)
                    else:
                        reply = await self._run(link, wanted, query)
            except StopIteration as end:
                found: OrderedResult = end.value
            keys = found.keys
            fetched = await link.fetch(self._sql["job"], _joined(keys)) if keys else ()
            records = {record.key: record for record in (rows.record(r, self.tag) for r in fetched)}
            return Page(
                tuple(records[key] for key in keys if key in records),
                ordered_pages.cursor(self.tag, order, found.resume),
                found.stopped,
                found.rows_read,
            )

        return await self._server.within(work, writes=False)

    async def _positions(self, link: Link, wanted: Filter, query: PositionsQuery) -> list[Position]:
        """The next places of all queues, merged by the server."""
        order = query.order
        counts = _counters(await link.fetch(self._count_by_kind, wanted.queue, None))
        states = _DUE_LATER if order.time == "due" else wanted.statuses
        queues = sorted({queue for queue, _, status, jobs in counts if status in states and jobs})
        statement = self._sql[f"positions_{order.time}{'_down' if order.descending else ''}"]
        values = (queues, [status.value for status in wanted.statuses])
        found = await link.fetch(statement, *values, *query.after, query.limit)
        return [(row[0], row[1]) for row in found]

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        row_keys = [self.row_key(job_id) for job_id in job_ids]
        keys = [row_key[0] for row_key in row_keys if row_key is not None]
        if not keys:
            return [None] * len(row_keys)
        found = await self._server.ask(self._sql["peek"], _joined(keys), writes=False)
        known = {(row[0], row[1] // 1000): row for row in found}
        replies: list[Peek | None] = []
        for row_key in row_keys:
            row = None if row_key is None else known.get(row_key)
            replies.append(None if row is None else Peek(rows.status_of(row[2]), row[3], row[4]))
        return replies

    async def newest(
        self, link: Link, wanted: Filter, *, limit: int, after: Cursor | None
    ) -> ScanResult:
        """Keys of up to ``limit`` matching jobs, newest first."""
        below = MAX_KEY if after is None else self._parse_cursor(after)
        return await self._scan(link, wanted, max(limit, 1), below)

    def cursor(self, scanned: ScanResult) -> Cursor | None:
        """Where the next page begins."""
        return None if scanned.resume_below is None else f"{self.tag:x}-{scanned.resume_below:x}"

    async def count(self, wanted: Filter, cap: int) -> CappedCount:
        """How many jobs match, counted up to ``cap``."""
        if pagination.is_counted(wanted):
            found = await self._server.ask(
                self._count_by_kind, wanted.queue, wanted.kind, writes=False
            )
            matching = pagination.count_filter(_counters(found), wanted).matching
            return CappedCount(min(matching, cap), matching > cap)

        async def work(link: Link) -> ScanResult:
            return await self._scan(link, wanted, cap, MAX_KEY, counting=True)

        scanned = await self._server.within(work, writes=False)
        return CappedCount(len(scanned.keys), scanned.resume_below is not None)

    async def _scan(
        self, link: Link, wanted: Filter, limit: int, below: int, *, counting: bool = False
    ) -> ScanResult:
        steps = pagination.scan(
            wanted, _sources, limit=limit, below=below, exact=wanted == Filter(), counting=counting
        )
        reply: Any = None
        await link.fetch(self._sql["index_scans_only"])
        try:
            while True:
                reply = await self._run(link, wanted, steps.send(reply))
        except StopIteration as end:
            return end.value

    async def _run(self, link: Link, wanted: Filter, query: ScanQuery) -> Any:
        match query:
            case CountersQuery():
                return _counters(await link.fetch(self._count_by_kind, wanted.queue, None))
            case KeyRangeQuery():
                row = await link.row(self._sql["key_range"])
                return None if row is None or row[0] is None else (row[0], row[1])
            case KeyProbe(key):
                row = await link.row(self._sql["at_or_after"], key)
                return None if row is None else (row[0], row[1])
            case KeysQuery(sources, below, batch):
                queues = (wanted.queue or "", wanted.queue or _LAST_QUEUE)
                values = (
                    below, batch, *queues, wanted.dedupe_key or "", wanted.group or "",
                    wanted.parent or "",
                )  # fmt: skip
                found = await link.fetch(self._keys_statement(sources), *values)
                return [sorted(_split(row["keys"]), reverse=True) for row in found]
            case MatchQuery(keys) if wanted.error is None and not wanted.reads_payloads:
                row = await link.row(
                    self._sql["matching_plain"], _joined(keys), *_plain_values(wanted)
                )
                return [(key, None, None) for key in _split(None if row is None else row[0])]
            case MatchQuery(keys):
                values = _values(wanted)
                found = await link.fetch(self._sql["matching"], _joined(keys), *values)
                return [(row[0], row[1], row[2]) for row in found]
            case _:
                assert_never(query)

    def _keys_statement(self, sources: tuple[str, ...]) -> str:
        """One statement, so one snapshot, for all sources: a job that changes from one source to
        another in between is not missed."""
        return " UNION ALL ".join(self._sql[f"keys_of_{source}"] for source in (*sources, "none"))

    async def keys_of(self, link: Link, job_ids: Sequence[str]) -> list[int | None]:
        """The keys of public ids; None for an id that is invalid, unknown or of another store."""
        row_keys = [self.row_key(job_id) for job_id in job_ids]
        keys = [row_key[0] for row_key in row_keys if row_key is not None]
        known = {(row[0], row[1] // 1000) for row in await link.fetch(self._enqueue_times, keys)}
        return [
            row_key[0] if row_key is not None and row_key in known else None for row_key in row_keys
        ]

    def row_key(self, job_id: str) -> tuple[int, int] | None:
        """The key in a public id, and when the job was enqueued in milliseconds."""
        row_key = ids.row_key(job_id, self.tag)
        return None if row_key is None or row_key[0] > MAX_KEY else row_key

    def _parse_cursor(self, cursor: Cursor) -> int:
        tag, _, key = cursor.partition("-")
        try:
            if int(tag, 16) == self.tag and 0 <= int(key, 16) <= MAX_KEY:
                return int(key, 16)
        except ValueError:
            pass
        raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")


def _joined(keys: Sequence[int]) -> str:
    return ",".join(map(str, keys))


def _counters(found: Sequence[Row]) -> list[tuple[str, str, str, int]]:
    """Rows of the counters: queue, kind, state, jobs."""
    return [(row[0], row[1], row[2], row[3]) for row in found]


def _split(keys: str | None) -> list[int]:
    return [] if not keys else list(map(int, keys.split(",")))


def _plain_values(wanted: Filter) -> tuple[object, ...]:
    values = _values(wanted)
    return (*values[:5], *values[6:8], *values[9:])


def _values(wanted: Filter) -> tuple[object, ...]:
    return (
        wanted.queue, wanted.kind,
        [status.value for status in wanted.statuses] if wanted.statuses else None,
        wanted.tag, wanted.dedupe_key,
        None if wanted.error is None else pagination.error_needle(wanted.error),
        wanted.enqueued_from, wanted.enqueued_until,
        pagination.payload_needle(wanted), wanted.finished_from, wanted.finished_until,
        None if wanted.owners is None else list(wanted.owners),
        wanted.group,
        wanted.parent,
    )  # fmt: skip


def _sources(wanted: Filter, counted: FilterCounts | None) -> tuple[str, ...]:
    """The sources of keys: the indexes of the wanted states, if each of them has one."""
    live = not wanted.statuses or any(status in LIVE for status in wanted.statuses)
    ended = not wanted.statuses or any(status not in LIVE for status in wanted.statuses)
    if wanted.dedupe_key is not None:
        return (*(("key",) if live else ()), *(("ended_key",) if ended else ()))
    if wanted.parent is not None:
        return (*(("child",) if live else ()), *(("ended_child",) if ended else ()))
    if wanted.group is not None:
        return (*(("group",) if live else ()), *(("ended_group",) if ended else ()))
    if counted is None or not wanted.statuses:
        return ("live", "ended")
    return (*(_live_sources(wanted, counted) if live else ()), *_ended_sources(wanted))


def _live_sources(wanted: Filter, counted: FilterCounts) -> tuple[str, ...]:
    sources: list[str] = []
    for status in dict.fromkeys(wanted.statuses):
        many = counted.by_status[status] > _MAX_SORTED
        match status:
            case JobStatus.FAILED:
                sources.append("failed")
            case JobStatus.RUNNING | JobStatus.HELD if not many:
                sources.append(status.value)
            case JobStatus.SCHEDULED | JobStatus.SUSPENDED if all(
                counted.by_status[each] <= _MAX_SORTED for each in _DUE_LATER
            ):
                sources.append("due")
            case JobStatus.PENDING if not many:
                sources += ("line", "track")
            case JobStatus.DONE | JobStatus.DEAD | JobStatus.CANCELLED:
                continue
            case _:
                return ("live",)
    return tuple(dict.fromkeys(sources))


def _ended_sources(wanted: Filter) -> tuple[str, ...]:
    if JobStatus.DONE in wanted.statuses:
        return ("ended",)
    indexed = (JobStatus.DEAD, JobStatus.CANCELLED)
    return tuple(status.value for status in indexed if status in wanted.statuses)
