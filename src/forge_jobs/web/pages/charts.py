"""What charts carry: their numbers by time, for the script that draws them and for their table."""

from collections.abc import Callable, Sequence
from typing import Final

from forge_jobs.ops.metrics import HostPoint, HostSeries, Point, Spans

from .page import Shown

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
) -> Shown:
    """What a chart's figure carries, and what its table shows. ``span`` has its ends, where not all
    points are there yet."""
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


def flow(points: Sequence[Point], unit: str, span: Sequence[float]) -> Shown:
    """How many jobs came and ended."""
    names = ("enqueued", "done", "retried", "dead")
    return chart(
        "flow",
        "Jobs",
        times(points),
        {name: [getattr(point, name) for point in points] for name in names},
        note=unit,
        tones=("info", "good", "warn", "bad"),
        span=span,
    )


def latency(
    name: str,
    title: str,
    at: Sequence[float],
    spans: Sequence[Spans],
    span: Sequence[float] = (),
) -> Shown:
    """Half of all, 95 and 99 in a hundred took no longer."""
    series = {one: [getattr(told, f"{one}_s") for told in spans] for one in QUANTILES}
    return chart(name, title, at, series, unit="s", tones=("info", "wait", "warn"), span=span)


def resources(hosts: Sequence[HostSeries], at: Sequence[float]) -> list[Shown]:
    """Processor and memory, a line per worker."""
    cores = _by_host(hosts, at, lambda point: point.cores)
    memory = _by_host(hosts, at, lambda point: point.memory_bytes)
    return [
        chart("cores", "Processor", at, cores, unit="cores", note="cores in use per worker"),
        chart("memory", "Memory", at, memory, unit="bytes", note="per worker"),
    ]


def times(points: Sequence[Point]) -> list[float]:
    """When each point begins, in seconds."""
    return [point.at.timestamp() for point in points]


def _by_host(
    hosts: Sequence[HostSeries],
    at: Sequence[float],
    of: Callable[[HostPoint], float | None],
) -> dict[str, list[float | None]]:
    series: dict[str, list[float | None]] = {}
    for host in hosts[-_MAX_HOSTS:]:
        values = {point.at.timestamp(): of(point) for point in host.points}
        label = host.label if host.label not in series else host.host_id
        series[label] = [values.get(moment) for moment in at]
    return series
