"""Data of charts: series by time, for the script that draws them and for the table below."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.ops.metrics import DurationStats, HostPoint, HostSeries, Point

from .page import TemplateVars

QUANTILES: Final = ("p50", "p95", "p99")
_MAX_HOSTS: Final = 8


class ChartFrame(Struct, frozen=True):
    """What the charts of one page have in common.

    The points from ``open_from`` on have not ended; of the last one the share ``elapsed`` has
    passed. ``earlier`` are the points of a day or a week before, whose series end in ``suffix``.
    ``marks`` are times with a text. ``step_s`` is the length of a
    point. ``level``: values are of the end of a point, not sums over it.
    """

    open_from: int = 1 << 30
    elapsed: float = 1.0
    step_s: int = 0
    earlier: tuple[Point, ...] = ()
    suffix: str = ""
    marks: tuple[tuple[float, str], ...] = ()
    level: bool = False


def aligned(values: Sequence[float | None], length: int) -> list[float | None]:
    """The newest ``length`` values; None where older ones are missing."""
    newest = list(values[-length:]) if length else []
    return [None] * (length - len(newest)) + newest


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
    frame: ChartFrame | None = None,
) -> TemplateVars:
    """Variables of the ``chart`` macro. ``span`` holds the ends of the time axis, for charts whose
    older points are still missing."""
    frame = frame or ChartFrame()
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
            "open": frame.open_from if frame.open_from < len(at) else None,
            "elapsed": round(frame.elapsed, 2),
            "before": [name for name in series if name.endswith(frame.suffix) and frame.suffix],
            "marks": frame.marks,
            "step": frame.step_s,
            "level": frame.level,
        },
    }


def frame_of(
    points: Sequence[Point],
    step_s: int,
    now: Instant,
    *,
    earlier: Sequence[Point] = (),
    suffix: str = "",
    marks: Sequence[tuple[float, str]] = (),
) -> ChartFrame:
    """The frame of charts of these points."""
    open_from = next((index for index, point in enumerate(points) if point.open), len(points))
    last = points[-1].at.timestamp() if points else 0.0
    elapsed = min(1.0, max(0.0, (now / SECOND - last) / step_s))
    return ChartFrame(open_from, elapsed, step_s, tuple(earlier), suffix, tuple(marks))


def jobs_chart(
    points: Sequence[Point], unit: str, span: Sequence[float], frame: ChartFrame
) -> TemplateVars:
    """Enqueued, done, retried and dead jobs, and the first two of an earlier time."""
    names = ("enqueued", "done", "retried", "dead")
    series: dict[str, list[float | None]] = {
        name: [getattr(point, name) for point in points] for name in names
    }
    for name in names[:2] if frame.suffix else ():
        series[name + frame.suffix] = aligned(
            [getattr(one, name) for one in frame.earlier], len(points)
        )
    tones = ("info", "good", "warn", "bad", "info", "good")
    at = point_times(points)
    return chart("flow", "Jobs", at, series, note=unit, tones=tones, span=span, frame=frame)


def latency_chart(
    name: str,
    title: str,
    at: Sequence[float],
    stats: Sequence[DurationStats],
    span: Sequence[float] = (),
    *,
    frame: ChartFrame | None = None,
    earlier: Sequence[DurationStats] = (),
) -> TemplateVars:
    """Percentiles 50, 95 and 99 of durations, and the 95th of an earlier time."""
    series: dict[str, list[float | None]] = {
        quantile: [getattr(one, f"{quantile}_s") for one in stats] for quantile in QUANTILES
    }
    if frame is not None and frame.suffix:
        series["p95" + frame.suffix] = aligned([one.p95_s for one in earlier], len(at))
    tones = ("info", "wait", "warn", "wait")
    return chart(name, title, at, series, unit="s", tones=tones, span=span, frame=frame)


def backlog_charts(
    points: Sequence[Point],
    unfinished: Sequence[int],
    utilisation: Sequence[float | None],
    span: Sequence[float],
    frame: ChartFrame,
) -> list[TemplateVars]:
    """Unfinished jobs, and how busy the slots were."""
    at = point_times(points)
    # what is unfinished is a level, not a sum over the step: it is not scaled
    level = replace(frame, elapsed=1.0, level=True)
    return [
        chart(
            "unfinished", "Unfinished jobs", at, {"unfinished": list(unfinished)},
            note="waiting, scheduled or running", tones=("wait",), span=span, frame=level,
        ),
        chart(
            "utilisation", "Utilisation", at, {"busy": list(utilisation)}, unit="share",
            note="of the slots; a run counts when it ends", tones=("info",), span=span, frame=level,
        ),
    ]  # fmt: skip


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
