"""Reads what the charts of a queue and kind show: points, those to compare with, marks."""

import asyncio

from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.ops.chart_cache import Chart
from forge_jobs.ops.metrics import Point
from forge_jobs.ops.versions import worker_versions
from forge_jobs.web.request_context import RequestContext

from .charts import ChartFrame, frame_of
from .comparison import Comparison, parse_comparison
from .page import Params
from .ranges import ChartRange, parse_range


class ChartData(Struct, frozen=True, kw_only=True):
    """What the charts of a page show."""

    range: ChartRange
    queue: str | None
    kind: str | None
    comparison: Comparison | None
    chart: Chart
    frame: ChartFrame

    @property
    def points(self) -> tuple[Point, ...]:
        return self.chart.points

    @property
    def unit(self) -> str:
        """The length of a point, and whether older ones are still missing."""
        return self.range.unit if self.chart.complete else f"{self.range.unit}; reading the rest"

    @property
    def wanted(self) -> dict[str, str]:
        """The parameters of links that keep queue, kind and comparison."""
        against = self.comparison.name if self.comparison else ""
        return {"queue": self.queue or "", "kind": self.kind or "", "against": against}

    @property
    def link(self) -> dict[str, str]:
        """The same with the range."""
        if self.range.name:
            return {**self.wanted, "range": self.range.name}
        ends = {"from": self.range.since.isoformat(), "until": self.range.until.isoformat()}
        return {**self.wanted, **ends}


async def read_points(context: RequestContext, params: Params, now: Instant) -> ChartData:
    """The points of the range, queue, kind and comparison of these parameters."""
    range_, comparison = parse_range(params, now), parse_comparison(params)
    queue, kind = params.get("queue") or None, params.get("kind") or None
    chart, versions = await asyncio.gather(
        _chart(context, range_, queue, kind), worker_versions(context.store)
    )
    earlier = (
        await _chart(context, range_, queue, kind, comparison) if comparison else Chart((), True)
    )
    since, until = range_.since.timestamp(), range_.until.timestamp()
    return ChartData(
        range=range_,
        queue=queue,
        kind=kind,
        comparison=comparison,
        chart=Chart(chart.points, chart.complete and earlier.complete),
        frame=frame_of(
            chart.points,
            range_.step_s,
            now,
            earlier=earlier.points,
            suffix=comparison.suffix if comparison else "",
            marks=[
                (one.first_at.timestamp(), one.version)
                for one in versions
                if since <= one.first_at.timestamp() < until
            ],
        ),
    )


async def _chart(
    context: RequestContext,
    range_: ChartRange,
    queue: str | None,
    kind: str | None,
    comparison: Comparison | None = None,
) -> Chart:
    since, until = range_.since, range_.until
    if comparison is not None:
        since, until = since - comparison.ago, until - comparison.ago
    return await context.chart_cache.chart(
        context.store, since=since, until=until, step_s=range_.step_s, queue=queue, kind=kind
    )
