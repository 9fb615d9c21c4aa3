"""Data of charts: series by time, for the script that draws them and for the table below."""

from collections.abc import Callable, Sequence
from typing import Final

from forge_jobs.ops.metrics import DurationStats, HostPoint, HostSeries, Point

from .page import TemplateVars

QUANTILES: Final = ("p50", "p95", "p99")
_MAX_HOSTS: Final = 8


def chart(
    name: str,
    title: str,
    at: Sequence[float],
    series: dict[str, list[float | None]],
    *,
    unit: str = "",
    note: str = "",
    tones: Sequence[str] = (),
    span: Sequence[float] = (),
) -> TemplateVars:
    """Variables of the ``chart`` macro. ``span`` holds the ends of the time axis, for charts whose
    older points are still missing."""
    return {
        "name": name,
        "title": title,
        "note": note,
        "data": {
            "at": at,
            "span": (*span[:1], *span[-1:]) or (*at[:1], *at[-1:]),
            "series": series,
            "unit": unit,
            "tones": list(tones),
        },
    }


def jobs_chart(points: Sequence[Point], unit: str, span: Sequence[float]) -> TemplateVars:
    """Enqueued, done, retried and dead jobs."""
    names = ("enqueued", "done", "retried", "dead")
    return chart(
        "flow",
        "Jobs",
        point_times(points),
        {name: [getattr(point, name) for point in points] for name in names},
        note=unit,
        tones=("info", "good", "warn", "bad"),
        span=span,
    )


def latency_chart(
    name: str,
    title: str,
    at: Sequence[float],
    stats: Sequence[DurationStats],
    span: Sequence[float] = (),
) -> TemplateVars:
    """Percentiles 50, 95 and 99 of durations."""
    series = {quantile: [getattr(one, f"{quantile}_s") for one in stats] for quantile in QUANTILES}
    return chart(name, title, at, series, unit="s", tones=("info", "wait", "warn"), span=span)


def resource_charts(hosts: Sequence[HostSeries], at: Sequence[float]) -> list[TemplateVars]:
    """Processor and memory, one line per worker."""
    cores = _by_host(hosts, at, lambda point: point.cores)
    memory = _by_host(hosts, at, lambda point: point.memory_bytes)
    return [
        chart("cores", "Processor", at, cores, unit="cores", note="cores in use per worker"),
        chart("memory", "Memory", at, memory, unit="bytes", note="per worker"),
    ]


def point_times(points: Sequence[Point]) -> list[float]:
    """The start of each point, in seconds since 1970."""
    return [point.at.timestamp() for point in points]


def _by_host(
    hosts: Sequence[HostSeries],
    at: Sequence[float],
    value_of: Callable[[HostPoint], float | None],
) -> dict[str, list[float | None]]:
    series: dict[str, list[float | None]] = {}
    for host in hosts[-_MAX_HOSTS:]:
        values = {point.at.timestamp(): value_of(point) for point in host.points}
        label = host.label if host.label not in series else host.host_id
        series[label] = [values.get(time) for time in at]
    return series
