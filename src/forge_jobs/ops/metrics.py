"""How many, how long, and how the machines fared: read models for charts and for ``forge stats``.

Everything is computed from the roll-ups of the books; no job is read. Percentiles come from merged
buckets and are within 7 % (``core.histogram``).
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


class Spans(View, frozen=True, kw_only=True):
    """How long something took, in seconds; everything but ``count`` is None without samples."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None


class Point(View, frozen=True, kw_only=True):
    """What happened from ``at`` on, for one step of a series."""

    at: datetime
    enqueued: int
    started: int
    done: int
    retried: int
    dead: int
    cancelled: int
    throttled: int
    released: int
    waited: Spans
    ran: Spans
    took: Spans


class Series(View, frozen=True, kw_only=True):
    """A chart: points without gaps, oldest first. ``queue`` and ``kind`` None: over all of them."""

    queue: str | None
    kind: str | None
    step_s: int
    points: tuple[Point, ...]


class KindView(View, frozen=True, kw_only=True):
    """What jobs of one queue and kind did within a range."""

    queue: str
    kind: str
    whole: Point


class HostPoint(View, frozen=True, kw_only=True):
    """How one worker process fared for one step."""

    at: datetime
    cores: float | None
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    disk_share: float
    running: int
    exchange: Spans
    errors: int


class HostSeries(View, frozen=True, kw_only=True):
    """A worker process over time; steps in which it did not report are left out."""

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
) -> Series:
    """What happened in a range, in steps of whole minutes. BadOption for more than 2,000 steps."""
    first, end, step = steps_of(since, until, step_s)
    told = await store.metrics.minutes(since=first, until=end, queue=queue)
    steps: dict[Instant, list[Minute]] = {at: [] for at in range(first, end, step)}
    for part in told:
        if kind in (None, part.kind):
            steps[first + (part.at - first) // step * step].append(part)
    return Series(
        queue=queue,
        kind=kind,
        step_s=step // SECOND,
        points=tuple(point(at, parts) for at, parts in steps.items()),
    )


async def events(
    store: Store, *, minutes: int = 60, queue: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> Series:
    """The last minutes with the present one: what a page or ``forge stats --watch`` shows."""
    now = await store_now(store, clock)
    until = now - now % MINUTE + MINUTE
    return await series(
        store, since=to_datetime(until - minutes * MINUTE), until=to_datetime(until), queue=queue
    )


async def kinds(store: Store, *, since: datetime, until: datetime) -> tuple[KindView, ...]:
    """What each kind of job did within a range, by queue and kind."""
    first, end, _ = steps_of(since, until, None)
    told = await store.metrics.minutes(since=first, until=end)
    return tuple(
        KindView(queue=whole.queue, kind=whole.kind, whole=point(first, [whole]))
        for whole in sum_totals(told)
    )


async def hosts(
    store: Store, *, since: datetime, until: datetime, step_s: int = _MINUTE_S
) -> tuple[HostSeries, ...]:
    """Processor, memory, disk and store latency of every worker process, by label."""
    first, end, step = steps_of(since, until, step_s)
    told = await store.metrics.vitals(since=first, until=end)
    known: dict[str, dict[Instant, list[Vitals]]] = {}
    for part in told:
        at = first + (part.at - first) // step * step
        known.setdefault(part.host_id, {}).setdefault(at, []).append(part)
    found = [
        HostSeries(
            host_id=host_id,
            label=next(reversed(steps.values()))[-1].label,
            step_s=step // SECOND,
            points=tuple(_host_point(at, parts) for at, parts in steps.items()),
        )
        for host_id, steps in known.items()
    ]
    return tuple(sorted(found, key=lambda host: (host.label, host.host_id)))


async def totals(store: Store) -> tuple[Minute, ...]:
    """Everything that ever happened, per queue and kind: what a counter shows."""
    return tuple(await store.metrics.totals())


def spans(histogram: Histogram) -> Spans:
    """The figures of a histogram."""
    return Spans(
        count=histogram.count,
        mean_s=_rounded(histogram.mean_s),
        p50_s=_rounded(histogram.quantile(0.5)),
        p95_s=_rounded(histogram.quantile(0.95)),
        p99_s=_rounded(histogram.quantile(0.99)),
        max_s=_rounded(histogram.max_s),
    )


def steps_of(
    since: datetime, until: datetime, step_s: int | None
) -> tuple[Instant, Instant, Instant]:
    """A range in whole minutes and its step, as instants. BadOption for one that cannot be."""
    first = from_datetime(since, field="since") // MINUTE * MINUTE
    end = from_datetime(until, field="until")
    if end <= first:
        raise BadOption("until must lie after since")
    step = end - first if step_s is None else step_s * SECOND
    if step_s is not None and (step_s < _MINUTE_S or step_s % _MINUTE_S):
        raise BadOption(f"step_s={step_s} must be a whole number of minutes: use 60, 300, 3600, …")
    if -(-(end - first) // step) > MAX_POINTS:
        raise BadOption(f"that makes more than {MAX_POINTS:,} points: choose a longer step_s")
    return first, end, step


def point(at: Instant, parts: Sequence[Minute]) -> Point:
    """Everything that happened in one step."""
    whole = merge_minutes(parts, at=at, queue="", kind="")
    return Point(
        at=to_datetime(at),
        enqueued=whole.enqueued,
        started=whole.started,
        done=whole.done,
        retried=whole.retried,
        dead=whole.dead,
        cancelled=whole.cancelled,
        throttled=whole.throttled,
        released=whole.released,
        waited=spans(whole.waited),
        ran=spans(whole.ran),
        took=spans(whole.took),
    )


def _host_point(at: Instant, parts: Sequence[Vitals]) -> HostPoint:
    whole = merge_vitals(parts)
    cores = whole.cores
    return HostPoint(
        at=to_datetime(at),
        cores=None if cores is None else round(cores, 3),
        memory_bytes=whole.memory_bytes,
        disk_read_bytes=whole.disk_read_bytes,
        disk_write_bytes=whole.disk_write_bytes,
        disk_share=whole.disk_share,
        running=whole.running,
        exchange=spans(whole.exchange),
        errors=whole.errors,
    )


def _rounded(span_s: float | None) -> float | None:
    return None if span_s is None else float(f"{span_s:.4g}")
