"""Run times as a histogram with bars, and as a heat map over time."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from forge_jobs.core.counters import Minute
from forge_jobs.core.histogram import BOUNDS, Histogram, merged
from forge_jobs.core.instant import Instant, to_datetime

from .metrics import DurationStats, duration_stats
from .views import View

# Buckets of core.histogram per bar and per row; from the first one on, twenty are a decade.
_PER_BAR: Final = 5
_PER_ROW: Final = 10
_FIRST: Final = 4


class Bucket(View, frozen=True, kw_only=True):
    """How many runs took from ``from_s`` up to ``to_s``; None: any longer time."""

    from_s: float
    to_s: float | None
    runs: int = 0


class LatencyColumn(View, frozen=True, kw_only=True):
    """One period of a heat map: percentiles, and how many runs fell into each row."""

    at: datetime
    ran: DurationStats
    runs: tuple[int, ...]


class HeatMap(View, frozen=True, kw_only=True):
    """Run times over time. ``rows`` are the ranges of run time, the shortest first; ``columns`` the
    periods, oldest first."""

    rows: tuple[Bucket, ...]
    columns: tuple[LatencyColumn, ...]


def run_histogram(ran: Histogram) -> tuple[Bucket, ...]:
    """Bars of a quarter of a decade each, from the shortest run to the longest."""
    return _buckets(_grouped(ran, _PER_BAR), _PER_BAR)


def heat_map(entries: Iterable[Minute], starts: Sequence[Instant]) -> HeatMap:
    """A column per period, rows of half a decade each."""
    by_start: dict[Instant, list[Histogram]] = {at: [] for at in starts}
    for entry in entries:
        by_start.setdefault(entry.at, []).append(entry.ran)
    columns = {at: merged(parts) for at, parts in sorted(by_start.items())}
    rows = _grouped(merged(columns.values()), _PER_ROW)
    groups = range(min(rows), max(rows) + 1) if rows else range(0)
    return HeatMap(
        rows=_buckets(rows, _PER_ROW),
        columns=tuple(_column(at, ran, groups) for at, ran in columns.items()),
    )


def _column(at: Instant, ran: Histogram, groups: range) -> LatencyColumn:
    runs = _grouped(ran, _PER_ROW)
    return LatencyColumn(
        at=to_datetime(at),
        ran=duration_stats(ran),
        runs=tuple(runs.get(group, 0) for group in groups),
    )


def _buckets(runs: dict[int, int], size: int) -> tuple[Bucket, ...]:
    if not runs:
        return ()
    return tuple(
        Bucket(from_s=_lower(group, size), to_s=_upper(group, size), runs=runs.get(group, 0))
        for group in range(min(runs), max(runs) + 1)
    )


def _grouped(ran: Histogram, size: int) -> dict[int, int]:
    """Samples by group of ``size`` buckets; group 0 are those below 100 µs."""
    sums: dict[int, int] = {}
    for bucket, samples in ran.buckets.items():
        group = 0 if bucket < _FIRST else (bucket - _FIRST) // size + 1
        sums[group] = sums.get(group, 0) + samples
    return sums


def _lower(group: int, size: int) -> float:
    return 0.0 if group == 0 else BOUNDS[_FIRST - 1 + (group - 1) * size]


def _upper(group: int, size: int) -> float | None:
    bucket = _FIRST - 1 + group * size
    return BOUNDS[bucket] if bucket < len(BOUNDS) else None
