"""Read models of tasks: what each kind, or each queue, did over a range, and what waits.

Everything comes from roll-ups and counters; no job is read, however many there are.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from forge_jobs.core.counters import KindCount, Minute
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.histogram import Histogram, merged
from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .metrics import DurationStats, duration_stats
from .period_ranges import PeriodRange, period_range
from .run_times import Bucket, HeatMap, heat_map, run_histogram
from .store_time import store_now
from .views import View

MAX_ROWS: Final = 1_000
# Stored entries that one page reads: 100 kinds over a month of days are 3,100 of them.
_MAX_ENTRIES: Final = 10_000
_BACKLOG: Final = (JobStatus.PENDING, JobStatus.HELD)


class By(StrEnum):
    """What a row of the list stands for."""

    KIND = "kind"
    QUEUE = "queue"


class Sort(StrEnum):
    """By what the list is sorted: the largest first, names alphabetically."""

    SHARE = "share"
    NAME = "name"
    THROUGHPUT = "throughput"
    FAILURES = "failures"
    WAIT = "wait"
    RUN = "run"
    BACKLOG = "backlog"


class TrendPoint(View, frozen=True, kw_only=True):
    """One period of a trend; ``failed`` counts retried and dead jobs."""

    at: datetime
    succeeded: int = 0
    failed: int = 0


class TaskView(View, frozen=True, kw_only=True):
    """A kind, or a queue, over a range.

    ``failed`` counts retried and dead jobs, ``failure_rate`` is its share of all ends, None without
    any. ``per_s`` is how many jobs came to an end per second, ``in_per_s`` how many were enqueued.
    ``run_share`` is its share of the run time of all. ``backlog`` are the jobs that are due now and
    wait; ``empty_in_s`` is when that is done at the pace of the range, None if it does not shrink.
    """

    name: str
    queues: tuple[str, ...]
    enqueued: int
    done: int
    retried: int
    dead: int
    failed: int
    failure_rate: float | None
    per_s: float
    in_per_s: float
    waited: DurationStats
    ran: DurationStats
    ran_s: float
    run_share: float
    backlog: int
    running: int
    empty_in_s: float | None
    trend: tuple[TrendPoint, ...]


class TasksPage(View, frozen=True, kw_only=True):
    """One page of the list. ``total``: how many rows there are. ``complete`` False: there are so
    many kinds that the oldest periods were not read. ``next`` continues the list."""

    by: By
    range: str
    since: datetime
    until: datetime
    sort: Sort
    tasks: tuple[TaskView, ...]
    total: int
    complete: bool
    next: str | None


class TaskDetail(View, frozen=True, kw_only=True):
    """A kind over a range: its numbers, a histogram of run time, and a heat map of it over time."""

    range: str
    since: datetime
    until: datetime
    task: TaskView
    histogram: tuple[Bucket, ...]
    heat_map: HeatMap


async def tasks(
    store: Store,
    *,
    range_name: str | None = None,
    by: str = By.KIND,
    sort: str = Sort.SHARE,
    limit: int = 100,
    after: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> TasksPage:
    """What each kind, or each queue, did over a range (one of ``RANGES``)."""
    if not 1 <= limit <= MAX_ROWS:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_ROWS:,}: page with the cursor")
    by, sort = _choice(By, "by", by), _choice(Sort, "sort", sort)
    over = period_range(range_name, await store_now(store, clock))
    counts, entries = await asyncio.gather(
        store.breakdowns.counts(),
        store.breakdowns.periods(
            over.length, since=over.since, until=over.now + 1, limit=_MAX_ENTRIES
        ),
    )
    rows = sorted(_rows(counts, entries, by), key=_order(sort))
    keys = [_cursor(row, sort) for row in rows]
    first = 0 if after is None else bisect_right(keys, _parse(after))
    page = rows[first : first + limit]
    all_ran_s = sum(row.ran_s for row in rows)
    return TasksPage(
        by=by,
        range=over.name,
        since=over.since_at,
        until=over.until_at,
        sort=sort,
        tasks=tuple(_view(row, over, all_ran_s) for row in page),
        total=len(rows),
        complete=len(entries) < _MAX_ENTRIES,
        next=_text(keys[first + limit - 1]) if first + limit < len(rows) else None,
    )


async def task(
    store: Store, kind: str, *, range_name: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> TaskDetail:
    """One kind; NotFound if it has neither jobs nor numbers in the range."""
    over = period_range(range_name, await store_now(store, clock), fine=True)
    counts, entries = await asyncio.gather(
        store.breakdowns.counts(),
        store.breakdowns.periods(over.length, since=over.since, until=over.now + 1, kind=kind),
    )
    rows = _rows([count for count in counts if count.kind == kind], entries, By.KIND)
    if not rows:
        raise NotFound(
            f"no job of the kind {kind!r} is stored or ran since {over.since_at:%Y-%m-%d %H:%M} UTC"
        )
    [row] = rows
    return TaskDetail(
        range=over.name,
        since=over.since_at,
        until=over.until_at,
        task=_view(row, over, row.ran_s),
        histogram=run_histogram(row.ran),
        heat_map=heat_map(row.entries, over.starts),
    )


# -------------------------------------------------------------------- rows


class _Row(NamedTuple):
    name: str
    counts: Mapping[JobStatus, int]
    entries: Sequence[Minute]
    queues: tuple[str, ...]
    waited: Histogram
    ran: Histogram
    ended: int
    failed: int

    @property
    def ran_s(self) -> float:
        return self.ran.sum_s

    @property
    def backlog(self) -> int:
        return sum(self.counts.get(status, 0) for status in _BACKLOG)

    @property
    def failure_rate(self) -> float:
        return self.failed / self.ended if self.ended else -1.0


def _rows(counts: Iterable[KindCount], entries: Iterable[Minute], by: By) -> list[_Row]:
    jobs: dict[str, dict[JobStatus, int]] = {}
    queues: dict[str, set[str]] = {}
    grouped: dict[str, list[Minute]] = {}
    for count in counts:
        name = count.kind if by is By.KIND else count.queue
        by_status = jobs.setdefault(name, {})
        by_status[count.status] = by_status.get(count.status, 0) + count.jobs
        queues.setdefault(name, set()).add(count.queue)
    for entry in entries:
        name = entry.kind if by is By.KIND else entry.queue
        grouped.setdefault(name, []).append(entry)
        queues.setdefault(name, set()).add(entry.queue)
    return [
        _row(name, jobs.get(name, {}), grouped.get(name, ()), tuple(sorted(queues[name])))
        for name in queues
    ]


def _row(
    name: str, counts: Mapping[JobStatus, int], entries: Sequence[Minute], queues: tuple[str, ...]
) -> _Row:
    failed = sum(entry.retried + entry.dead for entry in entries)
    return _Row(
        name=name,
        counts=counts,
        entries=entries,
        queues=queues,
        waited=merged(entry.waited for entry in entries),
        ran=merged(entry.ran for entry in entries),
        ended=failed + sum(entry.done for entry in entries),
        failed=failed,
    )


def _view(row: _Row, over: PeriodRange, all_ran_s: float) -> TaskView:
    enqueued = sum(entry.enqueued for entry in row.entries)
    gone = sum(entry.done + entry.dead + entry.cancelled for entry in row.entries)
    return TaskView(
        name=row.name,
        queues=row.queues,
        enqueued=enqueued,
        done=sum(entry.done for entry in row.entries),
        retried=sum(entry.retried for entry in row.entries),
        dead=sum(entry.dead for entry in row.entries),
        failed=row.failed,
        failure_rate=round(row.failure_rate, 4) if row.ended else None,
        per_s=_digits(row.ended / over.seconds),
        in_per_s=_digits(enqueued / over.seconds),
        waited=duration_stats(row.waited),
        ran=duration_stats(row.ran),
        ran_s=_digits(row.ran_s),
        run_share=round(row.ran_s / all_ran_s, 4) if all_ran_s else 0.0,
        backlog=row.backlog,
        running=row.counts.get(JobStatus.RUNNING, 0),
        empty_in_s=empty_in_s(row.backlog, enqueued, gone, over.seconds),
        trend=_trend(row.entries, over),
    )


def empty_in_s(backlog: int, enqueued: int, gone: int, seconds: float) -> float | None:
    """When a backlog is done if as much comes and goes as in the last seconds; None: never."""
    if not backlog:
        return 0.0
    return _digits(backlog * seconds / (gone - enqueued)) if gone > enqueued else None


def _trend(entries: Iterable[Minute], over: PeriodRange) -> tuple[TrendPoint, ...]:
    sums: dict[Instant, list[int]] = {at: [0, 0] for at in over.starts}
    for entry in entries:
        if entry.at in sums:
            sums[entry.at][0] += entry.done
            sums[entry.at][1] += entry.retried + entry.dead
    return tuple(
        TrendPoint(at=to_datetime(at), succeeded=done, failed=failed)
        for at, (done, failed) in sums.items()
    )


# -------------------------------------------------------------------- order and cursor

_Key = tuple[float, str]
E = TypeVar("E", bound=StrEnum)

_VALUES: Final[Mapping[Sort, Callable[[_Row], float]]] = {
    Sort.SHARE: lambda row: row.ran_s,
    Sort.NAME: lambda _: 0.0,
    Sort.THROUGHPUT: lambda row: row.ended,
    Sort.FAILURES: lambda row: row.failure_rate,
    Sort.WAIT: lambda row: row.waited.quantile(0.95) or 0.0,
    Sort.RUN: lambda row: row.ran.quantile(0.95) or 0.0,
    Sort.BACKLOG: lambda row: row.backlog,
}


def _order(sort: Sort) -> Callable[[_Row], _Key]:
    return lambda row: _cursor(row, sort)


def _cursor(row: _Row, sort: Sort) -> _Key:
    """The place of a row: the list continues after it, whatever became of the row."""
    return -_VALUES[sort](row), row.name


def _text(key: _Key) -> str:
    return f"{key[0]!r} {key[1]}"


def _parse(cursor: str | None) -> _Key:
    value, _, name = (cursor or "").partition(" ")
    try:
        return float(value), name
    except ValueError:
        raise BadOption(
            f"after={cursor!r} is not a cursor of this list: use the `next` of a page"
        ) from None


def _choice(choices: type[E], field: str, value: str) -> E:
    if value not in tuple(choices):
        raise BadOption(f"{field}={value!r} is not one of {', '.join(choices)}")
    return choices(value)


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
