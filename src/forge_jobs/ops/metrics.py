"""Read models over time for charts and ``forge stats``: counts, durations, host resources.

Everything is computed from the rolled-up counters; no job is read. Percentiles come from merged
histogram buckets and are within 7 % (``core.histogram``).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from forge_jobs.core.counters import Minute, merge_minutes, sum_totals
from forge_jobs.core.errors import BadOption
from forge_jobs.core.histogram import Histogram
from forge_jobs.core.instant import MINUTE, SECOND, Instant, from_datetime, to_datetime
from forge_jobs.core.vitals import Vitals, merge_vitals
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .store_time import store_now
from .views import View

MAX_POINTS: Final = 2_000
_MINUTE_S: Final = 60


class DurationStats(View, frozen=True, kw_only=True):
    """Durations in seconds; every field except ``count`` is None without samples."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None


class Point(View, frozen=True, kw_only=True):
    """Counters and durations of one step of a series, which starts at ``at``. ``open``: the step
    has not ended, so that its numbers still rise."""

    at: datetime
    open: bool
    enqueued: int
    started: int
    done: int
    retried: int
    dead: int
    cancelled: int
    throttled: int
    released: int
    waited: DurationStats
    ran: DurationStats
    took: DurationStats


class Series(View, frozen=True, kw_only=True):
    """Points without gaps, oldest first. ``queue`` or ``kind`` None: all of them."""

    queue: str | None
    kind: str | None
    step_s: int
    points: tuple[Point, ...]


class KindView(View, frozen=True, kw_only=True):
    """Counters and durations of one queue and kind over a range."""

    queue: str
    kind: str
    whole: Point


class HostPoint(View, frozen=True, kw_only=True):
    """Resources of one worker process, and its store latency, over one step."""

    at: datetime
    cores: float | None
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    disk_share: float
    running: int
    exchange: DurationStats
    errors: int


class HostSeries(View, frozen=True, kw_only=True):
    """A worker process over time; steps without a report are omitted."""

    host_id: str
    label: str
    step_s: int
    points: tuple[HostPoint, ...]


async def series(
    store: Store,
    *,
    since: datetime,
    until: datetime,
    step_s: int = _MINUTE_S,
    queue: str | None = None,
    kind: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Series:
    """A range in steps of whole minutes. BadOption for more than 2,000 steps."""
    start, end, step = align_range(since, until, step_s)
    now = await store_now(store, clock)
    samples = await store.metrics.minutes(since=start, until=end, queue=queue)
    steps: dict[Instant, list[Minute]] = {at: [] for at in range(start, end, step)}
    for sample in samples:
        if kind in (None, sample.kind):
            steps[start + (sample.at - start) // step * step].append(sample)
    return Series(
        queue=queue,
        kind=kind,
        step_s=step // SECOND,
        points=tuple(sum_point(at, samples, open=at + step > now) for at, samples in steps.items()),
    )


async def recent_minutes(
    store: Store, *, minutes: int = 60, queue: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> Series:
    """The last minutes by the minute, including the current one."""
    now = await store_now(store, clock)
    until = now - now % MINUTE + MINUTE
    return await series(
        store,
        since=to_datetime(until - minutes * MINUTE),
        until=to_datetime(until),
        queue=queue,
        clock=clock,
    )


async def by_kind(
    store: Store, *, since: datetime, until: datetime, clock: Clock = SYSTEM_CLOCK
) -> tuple[KindView, ...]:
    """Totals of a range for each queue and kind."""
    start, end, _ = align_range(since, until, None)
    is_open = end > await store_now(store, clock)
    samples = await store.metrics.minutes(since=start, until=end)
    return tuple(
        KindView(queue=total.queue, kind=total.kind, whole=sum_point(start, [total], open=is_open))
        for total in sum_totals(samples)
    )


async def hosts(
    store: Store, *, since: datetime, until: datetime, step_s: int = _MINUTE_S
) -> tuple[HostSeries, ...]:
    """Processor, memory, disk and store latency of every worker process, by label."""
    start, end, step = align_range(since, until, step_s)
    samples = await store.metrics.vitals(since=start, until=end)
    by_host: dict[str, dict[Instant, list[Vitals]]] = {}
    for sample in samples:
        at = start + (sample.at - start) // step * step
        by_host.setdefault(sample.host_id, {}).setdefault(at, []).append(sample)
    series_of_hosts = [
        HostSeries(
            host_id=host_id,
            label=next(reversed(steps.values()))[-1].label,
            step_s=step // SECOND,
            points=tuple(_host_point(at, samples) for at, samples in steps.items()),
        )
        for host_id, steps in by_host.items()
    ]
    return tuple(sorted(series_of_hosts, key=lambda host: (host.label, host.host_id)))


async def totals(store: Store) -> tuple[Minute, ...]:
    """Totals since the store was created, per queue and kind."""
    return tuple(await store.metrics.totals())


def duration_stats(histogram: Histogram) -> DurationStats:
    """Mean, percentiles and maximum of a histogram, to four digits."""
    return DurationStats(
        count=histogram.count,
        mean_s=_rounded(histogram.mean_s),
        p50_s=_rounded(histogram.quantile(0.5)),
        p95_s=_rounded(histogram.quantile(0.95)),
        p99_s=_rounded(histogram.quantile(0.99)),
        max_s=_rounded(histogram.max_s),
    )


def align_range(
    since: datetime, until: datetime, step_s: int | None
) -> tuple[Instant, Instant, Instant]:
    """Start, end and step of a range as instants, aligned to minutes. BadOption for an empty range,
    a step that is not whole minutes, or more than 2,000 steps."""
    start = from_datetime(since, field="since") // MINUTE * MINUTE
    end = from_datetime(until, field="until")
    if end <= start:
        raise BadOption("until must lie after since")
    step = end - start if step_s is None else step_s * SECOND
    if step_s is not None and (step_s < _MINUTE_S or step_s % _MINUTE_S):
        raise BadOption(f"step_s={step_s} must be a whole number of minutes: use 60, 300, 3600, …")
    if -(-(end - start) // step) > MAX_POINTS:
        raise BadOption(f"that makes more than {MAX_POINTS:,} points: choose a longer step_s")
    return start, end, step


def sum_point(at: Instant, minutes: Sequence[Minute], *, open: bool) -> Point:
    """Add up the minutes of one step."""
    total = merge_minutes(minutes, at=at, queue="", kind="")
    return Point(
        at=to_datetime(at),
        open=open,
        enqueued=total.enqueued,
        started=total.started,
        done=total.done,
        retried=total.retried,
        dead=total.dead,
        cancelled=total.cancelled,
        throttled=total.throttled,
        released=total.released,
        waited=duration_stats(total.waited),
        ran=duration_stats(total.ran),
        took=duration_stats(total.took),
    )


def _host_point(at: Instant, samples: Sequence[Vitals]) -> HostPoint:
    total = merge_vitals(samples)
    cores = total.cores
    return HostPoint(
        at=to_datetime(at),
        cores=None if cores is None else round(cores, 3),
        memory_bytes=total.memory_bytes,
        disk_read_bytes=total.disk_read_bytes,
        disk_write_bytes=total.disk_write_bytes,
        disk_share=total.disk_share,
        running=total.running,
        exchange=duration_stats(total.exchange),
        errors=total.errors,
    )


def _rounded(duration_s: float | None) -> float | None:
    return None if duration_s is None else float(f"{duration_s:.4g}")
