"""Read models of tags: what the runs of jobs with a tag came to over a range.

Counted by hour, so a range begins with the hour or day in which it starts. A tag that is not among
the heaviest of a day is counted under *other* (``core.tag_counts``).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.instant import DAY, HOUR, Instant, to_datetime
from forge_jobs.core.tag_counts import OTHER, TagDay, TagSums, TaskSums, add_sums, heaviest_tasks
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .period_ranges import PeriodRange, period_range
from .store_time import store_now
from .tasks import MAX_ROWS, TrendPoint
from .views import View


class TagSort(StrEnum):
    """By what the list is sorted: the largest first, names alphabetically."""

    SHARE = "share"
    NAME = "name"
    RUNS = "runs"
    FAILURES = "failures"
    WAIT = "wait"


class TagNumbers(View, frozen=True, kw_only=True):
    """What runs came to. ``failed`` counts retried and dead jobs, ``failure_rate`` is their share
    of all ends, None without any. Times are sums (``ran_s``) and means, None without runs."""

    runs: int
    done: int
    retried: int
    dead: int
    failed: int
    failure_rate: float | None
    ran_s: float
    mean_run_s: float | None
    mean_wait_s: float | None


class TagView(View, frozen=True, kw_only=True):
    """A tag over a range. ``run_share`` is its share of the run time of all jobs with tags."""

    tag: str
    numbers: TagNumbers
    run_share: float
    trend: tuple[TrendPoint, ...]


class TagTask(View, frozen=True, kw_only=True):
    """The part of one queue and kind in a tag. Both are empty for the rest together."""

    queue: str
    kind: str
    numbers: TagNumbers
    run_share: float


class TagsPage(View, frozen=True, kw_only=True):
    """One page of the list. ``other`` is what has no row of its own; ``next`` continues."""

    range: str
    since: datetime
    until: datetime
    sort: TagSort
    tags: tuple[TagView, ...]
    other: TagNumbers | None
    total: int
    next: str | None


class TagDetail(View, frozen=True, kw_only=True):
    """A tag over a range, with its queues and kinds, the heaviest first: those of whole days."""

    range: str
    since: datetime
    until: datetime
    tag: TagView
    tasks: tuple[TagTask, ...]


async def tags(
    store: Store,
    *,
    range_name: str | None = None,
    sort: str = TagSort.SHARE,
    limit: int = 100,
    after: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> TagsPage:
    """What each tag came to over a range (one of ``period_ranges.RANGES``)."""
    if not 1 <= limit <= MAX_ROWS:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_ROWS:,}: page with the cursor")
    if sort not in tuple(TagSort):
        raise BadOption(f"sort={sort!r} is not one of {', '.join(TagSort)}")
    sort, over = TagSort(sort), _by_hours(period_range(range_name, await store_now(store, clock)))
    days: dict[str, list[TagDay]] = {}
    for day in await store.breakdowns.tag_days(since=over.since, until=over.now + 1):
        days.setdefault(day.tag, []).append(day)
    sums = {tag: _within(found, over) for tag, found in days.items()}
    all_ran_s = sum(one.ran_s for one in sums.values())
    other = sums.pop(OTHER, None)
    keys = sorted((-_VALUES[sort](one), tag) for tag, one in sums.items() if one.runs)
    first = 0 if after is None else bisect_right(keys, _parse(after))
    page = keys[first : first + limit]
    more = first + limit < len(keys)
    return TagsPage(
        range=over.name,
        since=over.since_at,
        until=over.until_at,
        sort=sort,
        tags=tuple(_view(tag, sums[tag], days[tag], over, all_ran_s) for _, tag in page),
        other=None if other is None or not other.runs else tag_numbers(other),
        total=len(keys),
        next=f"{page[-1][0]!r} {page[-1][1]}" if more else None,
    )


async def tag(
    store: Store, name: str, *, range_name: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> TagDetail:
    """One tag; NotFound if none of its runs is counted in the range."""
    over = _by_hours(period_range(range_name, await store_now(store, clock)))
    days = (
        await store.breakdowns.tag_days(since=over.since, until=over.now + 1, tag=name)
        if name != OTHER
        else []
    )
    sums = _within(days, over)
    if not sums.runs:
        raise NotFound(
            f"no run of a job with the tag {name!r} is counted since "
            f"{over.since_at:%Y-%m-%d %H:%M} UTC: see `forge tags list`"
        )
    tasks = _tasks(days)
    whole_s = sum(one.sums.ran_s for one in tasks)
    return TagDetail(
        range=over.name,
        since=over.since_at,
        until=over.until_at,
        tag=_view(name, sums, days, over, sums.ran_s),
        tasks=tuple(
            TagTask(
                queue=one.queue,
                kind=one.kind,
                numbers=tag_numbers(one.sums),
                run_share=round(one.sums.ran_s / whole_s, 4) if whole_s else 0.0,
            )
            for one in tasks
        ),
    )


def tag_numbers(sums: TagSums) -> TagNumbers:
    """Sums as they are shown."""
    failed = sums.retried + sums.dead
    ended = failed + sums.done
    return TagNumbers(
        runs=sums.runs,
        done=sums.done,
        retried=sums.retried,
        dead=sums.dead,
        failed=failed,
        failure_rate=round(failed / ended, 4) if ended else None,
        ran_s=_digits(sums.ran_s),
        mean_run_s=_digits(sums.ran_s / sums.runs) if sums.runs else None,
        mean_wait_s=_digits(sums.waited_s / sums.runs) if sums.runs else None,
    )


def _by_hours(over: PeriodRange) -> PeriodRange:
    """The same range in hours, if it is in minutes: tags are counted by the hour."""
    if over.length >= HOUR:
        return over
    since = over.since - over.since % HOUR
    return PeriodRange(name=over.name, length=HOUR, since=since, now=over.now)


def _within(days: Iterable[TagDay], over: PeriodRange) -> TagSums:
    if over.length == DAY:
        return add_sums(day.total for day in days)
    return add_sums(
        sums
        for day in days
        for hour, sums in day.hours.items()
        if over.since <= day.day + hour * HOUR <= over.now
    )


def _tasks(days: Sequence[TagDay]) -> tuple[TaskSums, ...]:
    sums: dict[tuple[str, str], list[TagSums]] = {}
    for day in days:
        for one in day.tasks:
            sums.setdefault((one.queue, one.kind), []).append(one.sums)
    return heaviest_tasks([TaskSums(*name, add_sums(parts)) for name, parts in sums.items()])


def _view(
    name: str, sums: TagSums, days: Iterable[TagDay], over: PeriodRange, all_ran_s: float
) -> TagView:
    return TagView(
        tag=name,
        numbers=tag_numbers(sums),
        run_share=round(sums.ran_s / all_ran_s, 4) if all_ran_s else 0.0,
        trend=_trend(days, over),
    )


def _trend(days: Iterable[TagDay], over: PeriodRange) -> tuple[TrendPoint, ...]:
    by_start: dict[Instant, TagSums] = {}
    for day in days:
        if over.length == DAY:
            by_start[day.day] = day.total
        else:
            by_start.update({day.day + hour * HOUR: sums for hour, sums in day.hours.items()})
    return tuple(
        TrendPoint(at=to_datetime(at), succeeded=sums.done, failed=sums.retried + sums.dead)
        for at in over.starts
        for sums in (by_start.get(at, TagSums()),)
    )


_VALUES: Final[Mapping[TagSort, Callable[[TagSums], float]]] = {
    TagSort.SHARE: lambda sums: sums.ran_s,
    TagSort.NAME: lambda _: 0.0,
    TagSort.RUNS: lambda sums: sums.runs,
    TagSort.FAILURES: lambda sums: tag_numbers(sums).failure_rate or 0.0,
    TagSort.WAIT: lambda sums: tag_numbers(sums).mean_wait_s or 0.0,
}


def _parse(cursor: str) -> tuple[float, str]:
    value, _, name = cursor.partition(" ")
    try:
        return float(value), name
    except ValueError:
        raise BadOption(
            f"after={cursor!r} is not a cursor of this list: use the `next` of a page"
        ) from None


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
