"""Reading jobs: one by id, pages by filter, results for whoever waits."""

from collections.abc import Sequence
from typing import Any, Final, assert_never

from forge_jobs.backends.shared import pagination
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
from forge_jobs.core import ids
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Cursor, Filter, Page
from forge_jobs.core.status import LIVE, JobStatus
from forge_jobs.store.jobs import Peek

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .rows import MAX_KEY

# So many keys are put in order in a few milliseconds.
_MAX_SORTED: Final = 50_000
_LAST_NAME: Final = chr(0x10FFFF)


class Queries:
    """Reads; nothing here changes anything."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sql_files.statements("queries", server.address.schema)
        self._books = sql_files.statements("metrics", server.address.schema)["count_plain"]
        self._times = sql_files.statements("bulk", server.address.schema)["enqueue_times"]
        self.tag = 0

    async def get(self, job_id: str) -> JobRecord | None:
        place = self._place(job_id)
        if place is None:
            return None
        row = await self._server.ask_row(self._sql["job"], str(place[0]), writes=False)
        if row is None or row["enqueued_at"] // 1000 != place[1]:
            return None
        return rows.record(row, self.tag)

    async def page(self, wanted: Filter, *, limit: int, after: Cursor | None) -> Page:
        async def work(link: Link) -> Page:
            walked = await self.newest(link, wanted, limit=limit, after=after)
            keys = walked.keys
            found = await link.fetch(self._sql["job"], _joined(keys)) if keys else ()
            jobs = tuple(rows.record(row, self.tag) for row in found)
            return Page(jobs, self.cursor(walked), walked.stopped, walked.rows_read)

        return await self._server.within(work, writes=False)

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        places = [self._place(job_id) for job_id in job_ids]
        keys = [place[0] for place in places if place is not None]
        if not keys:
            return [None] * len(places)
        found = await self._server.ask(self._sql["peek"], _joined(keys), writes=False)
        known = {(row[0], row[1] // 1000): row for row in found}
        answers: list[Peek | None] = []
        for place in places:
            row = None if place is None else known.get(place)
            answers.append(None if row is None else Peek(rows.status_of(row[2]), row[3], row[4]))
        return answers

    async def newest(
        self, link: Link, wanted: Filter, *, limit: int, after: Cursor | None
    ) -> ScanResult:
        """Keys of up to ``limit`` matching jobs, newest first."""
        below = MAX_KEY if after is None else self._position(after)
        return await self._walked(link, wanted, max(limit, 1), below)

    def cursor(self, walked: ScanResult) -> Cursor | None:
        """Where the next page begins."""
        return None if walked.resume_below is None else f"{self.tag:x}-{walked.resume_below:x}"

    async def count(self, wanted: Filter, cap: int) -> CappedCount:
        """How many jobs match, looking at no more than so many."""
        if pagination.is_counted(wanted):
            told = await self._server.ask(self._books, wanted.queue, wanted.kind, writes=False)
            matching = pagination.count_filter(_lines(told), wanted).matching
            return CappedCount(min(matching, cap), matching > cap)

        async def work(link: Link) -> ScanResult:
            return await self._walked(link, wanted, cap, MAX_KEY, counting=True)

        walked = await self._server.within(work, writes=False)
        return CappedCount(len(walked.keys), walked.resume_below is not None)

    async def _walked(
        self, link: Link, wanted: Filter, limit: int, below: int, *, counting: bool = False
    ) -> ScanResult:
        steps = pagination.scan(
            wanted, _sources, limit=limit, below=below, exact=wanted == Filter(), counting=counting
        )
        answer: Any = None
        await link.fetch(self._sql["index_scans_only"])
        try:
            while True:
                answer = await self._answer(link, wanted, steps.send(answer))
        except StopIteration as end:
            return end.value

    async def _answer(self, link: Link, wanted: Filter, question: ScanQuery) -> Any:
        match question:
            case CountersQuery():
                return _lines(await link.fetch(self._books, wanted.queue, None))
            case KeyRangeQuery():
                row = await link.row(self._sql["key_range"])
                return None if row is None or row[0] is None else (row[0], row[1])
            case KeyProbe(key):
                row = await link.row(self._sql["at_or_after"], key)
                return None if row is None else (row[0], row[1])
            case KeysQuery(sources, below, most):
                queues = (wanted.queue or "", wanted.queue or _LAST_NAME)
                values = (below, most, *queues, wanted.dedupe_key or "")
                found = await link.fetch(self._keys_of(sources), *values)
                return [sorted(_split(row["keys"]), reverse=True) for row in found]
            case MatchQuery(keys) if wanted.error is None and wanted.payload is None:
                row = await link.row(self._sql["matching_plain"], _joined(keys), *_plain(wanted))
                return [(key, None, None) for key in _split(None if row is None else row[0])]
            case MatchQuery(keys):
                values = _values(wanted)
                found = await link.fetch(self._sql["matching"], _joined(keys), *values)
                return [(row[0], row[1], row[2]) for row in found]
            case _:
                assert_never(question)

    def _keys_of(self, sources: tuple[str, ...]) -> str:
        """One statement for all sources, so that a job that moves between them is not missed."""
        return " UNION ALL ".join(self._sql[f"keys_of_{source}"] for source in (*sources, "none"))

    async def keys_of(self, link: Link, job_ids: Sequence[str]) -> list[int | None]:
        """The keys behind public ids; None for one that is unknown, made up or not ours."""
        places = [self._place(job_id) for job_id in job_ids]
        keys = [place[0] for place in places if place is not None]
        known = {(row[0], row[1] // 1000) for row in await link.fetch(self._times, keys)}
        return [place[0] if place is not None and place in known else None for place in places]

    def _place(self, job_id: str) -> tuple[int, int] | None:
        place = ids.row_key(job_id, self.tag)
        return None if place is None or place[0] > MAX_KEY else place

    def _position(self, cursor: Cursor) -> int:
        tag, _, key = cursor.partition("-")
        try:
            if int(tag, 16) == self.tag and 0 <= int(key, 16) <= MAX_KEY:
                return int(key, 16)
        except ValueError:
            pass
        raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")


def _joined(keys: Sequence[int]) -> str:
    return ",".join(map(str, keys))


def _lines(found: Sequence[Row]) -> list[tuple[str, str, str, int]]:
    """Of the books: queue, kind, state, jobs."""
    return [(row[0], row[1], row[2], row[3]) for row in found]


def _split(keys: str | None) -> list[int]:
    return [] if not keys else list(map(int, keys.split(",")))


def _plain(wanted: Filter) -> tuple[object, ...]:
    values = _values(wanted)
    return (*values[:5], *values[6:8])


def _values(wanted: Filter) -> tuple[object, ...]:
    return (
        wanted.queue, wanted.kind,
        [status.value for status in wanted.statuses] if wanted.statuses else None,
        wanted.tag, wanted.dedupe_key,
        None if wanted.error is None else pagination.error_needle(wanted.error),
        wanted.enqueued_from, wanted.enqueued_until,
        None if wanted.payload is None else pagination.payload_needle(wanted.payload),
    )  # fmt: skip


def _sources(wanted: Filter, counted: FilterCounts | None) -> tuple[str, ...]:
    """Where to take keys from: indexes of the wanted states, if all of them have one to offer."""
    live = not wanted.statuses or any(status in LIVE for status in wanted.statuses)
    ended = not wanted.statuses or any(status not in LIVE for status in wanted.statuses)
    if wanted.dedupe_key is not None:
        return (*(("key",) if live else ()), *(("ended_key",) if ended else ()))
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
            case JobStatus.SCHEDULED if not many and (
                counted.by_status[JobStatus.FAILED] <= _MAX_SORTED
            ):
                sources.append("due")
            case JobStatus.PENDING if not many:
                sources += ("line", "track")
            case JobStatus.DONE | JobStatus.DEAD | JobStatus.CANCELLED:
                continue
            case _:
                return ("live",)
    return tuple(sources)


def _ended_sources(wanted: Filter) -> tuple[str, ...]:
    if JobStatus.DONE in wanted.statuses:
        return ("ended",)
    odd = (JobStatus.DEAD, JobStatus.CANCELLED)
    return tuple(status.value for status in odd if status in wanted.statuses)
