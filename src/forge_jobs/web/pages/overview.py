"""The first page: is everything well, and if not, where to look."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from forge_jobs.ops import look, metrics
from forge_jobs.ops.metrics import HostSeries, Point, Spans
from forge_jobs.web.desk import Desk

from .page import Given, Page, Shown
from .ranges import RANGES, Range, range_of

_QUANTILES: Final = ("p50", "p95", "p99")


async def view(desk: Desk, given: Given) -> Shown:
    chosen = range_of(given, desk.clock.now())
    queue = given.get("queue") or None
    span: dict[str, Any] = {"since": chosen.since, "until": chosen.until}
    seen, series, hosts = await asyncio.gather(
        look.overview(desk.store, minutes=1, clock=desk.clock),
        metrics.series(desk.store, step_s=chosen.step_s, queue=queue, **span),
        metrics.hosts(desk.store, step_s=chosen.step_s, **span),
    )
    points = series.points
    return {
        "seen": seen,
        "blocked": [queue for queue in seen.queues if queue.blocks],
        "range": chosen,
        "queue": queue or "",
        "ranges": list(RANGES),
        "sums": {
            name: sum(getattr(point, name) for point in points)
            for name in ("enqueued", "done", "retried", "dead")
        },
        "charts": [
            _flow(points, chosen),
            _latency("waited", "Wait before start", points),
            _latency("ran", "Run time", points),
            *_resources(hosts, points),
        ],
    }


def chart(
    name: str,
    title: str,
    at: Sequence[float],
    series: dict[str, list[float | None]],
    *,
    unit: str = "",
    note: str = "",
    tones: Sequence[str] = (),
) -> Shown:
    """What a chart's figure carries, and what its table shows."""
    return {
        "name": name,
        "title": title,
        "note": note,
        "data": {"at": at, "series": series, "unit": unit, "tones": list(tones)},
    }


def _flow(points: Sequence[Point], chosen: Range) -> Shown:
    names = ("enqueued", "done", "retried", "dead")
    return chart(
        "flow",
        "Jobs",
        _times(points),
        {name: [getattr(point, name) for point in points] for name in names},
        note=chosen.unit,
        tones=("info", "good", "warn", "bad"),
    )


def _latency(field: str, title: str, points: Sequence[Point]) -> Shown:
    spans: list[Spans] = [getattr(point, field) for point in points]
    series = {name: [getattr(one, f"{name}_s") for one in spans] for name in _QUANTILES}
    return chart(field, title, _times(points), series, unit="s", tones=("info", "wait", "warn"))


def _resources(hosts: Sequence[HostSeries], points: Sequence[Point]) -> list[Shown]:
    at = _times(points)
    return [
        chart(
            "cores",
            "Processor",
            at,
            _by_host(hosts, at, lambda point: point.cores),
            unit="cores",
            note="cores in use per worker",
        ),
        chart(
            "memory",
            "Memory",
            at,
            _by_host(hosts, at, lambda point: point.memory_bytes),
            unit="bytes",
            note="per worker",
        ),
    ]


def _by_host(
    hosts: Sequence[HostSeries],
    at: Sequence[float],
    of: Callable[[metrics.HostPoint], float | None],
) -> dict[str, list[float | None]]:
    series: dict[str, list[float | None]] = {}
    for host in hosts[-8:]:
        values = {point.at.timestamp(): of(point) for point in host.points}
        label = host.label if host.label not in series else host.host_id
        series[label] = [values.get(moment) for moment in at]
    return series


def _times(points: Sequence[Point]) -> list[float]:
    return [point.at.timestamp() for point in points]


PAGE: Final = Page(
    path="/", name="overview", title="Overview", template="overview.html", view=view, key="o"
)
