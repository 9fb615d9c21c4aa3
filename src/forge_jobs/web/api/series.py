"""Charts over HTTP: what happened over time, and how workers and their store fared."""

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct, field

from forge_jobs.ops import metrics
from forge_jobs.ops.metrics import HostSeries, KindView, Point, Series, Spans
from forge_jobs.web.request_context import RequestContext

from .parameters import KindName, Moment, QueueName, span
from .route import Routes

routes = Routes()

_MINUTE_S: Final = 60
BucketS = Annotated[int, Meta(ge=1, le=31_536_000)]


class Range(Struct, frozen=True, kw_only=True):
    """A range of time in steps; the last hour by the minute where nothing is said."""

    since: Moment | None = field(default=None, name="from")
    until: Moment | None = field(default=None, name="to")
    bucket_secs: BucketS = _MINUTE_S

    async def read(self, desk: RequestContext) -> tuple[datetime, datetime, int]:
        """The range, with the step raised to whole minutes."""
        since, until = span(self.since, self.until, await desk.now())
        return since, until, -(-self.bucket_secs // _MINUTE_S) * _MINUTE_S


class QueueRange(Range, frozen=True, kw_only=True):
    """The same for one queue, kind or both."""

    queue: QueueName | None = None
    kind: KindName | None = None


class StorePoint(Struct, frozen=True, kw_only=True):
    """How the store answered a worker for one step; ``errors`` are calls that failed."""

    at: datetime
    exchange: Spans
    errors: int


class StoreSeries(Struct, frozen=True, kw_only=True):
    """The store as one worker process sees it."""

    host_id: str
    label: str
    step_s: int
    points: tuple[StorePoint, ...]


@routes.get("/queue/timeline")
async def timeline(desk: RequestContext, query: Range) -> tuple[Point, ...]:
    """What happened over all queues; empty when the range is."""
    since, until, step_s = await query.read(desk)
    if until <= since:
        return ()
    return (await metrics.series(desk.store, since=since, until=until, step_s=step_s)).points


@routes.get("/queue/metric-series")
async def metric_series(desk: RequestContext, query: QueueRange) -> Series:
    """What happened, with percentiles of waiting and running."""
    since, until, step_s = await query.read(desk)
    return await metrics.series(
        desk.store, since=since, until=until, step_s=step_s, queue=query.queue, kind=query.kind
    )


@routes.get("/queue/kind-series")
async def kind_series(desk: RequestContext, query: Range) -> tuple[KindView, ...]:
    """What jobs of each queue and kind did within the range, in one step."""
    since, until, _ = await query.read(desk)
    return await metrics.kinds(desk.store, since=since, until=until)


@routes.get("/queue/resource-series")
async def resource_series(desk: RequestContext, query: Range) -> tuple[HostSeries, ...]:
    """Processor, memory and disk of every worker process."""
    since, until, step_s = await query.read(desk)
    return await metrics.hosts(desk.store, since=since, until=until, step_s=step_s)


@routes.get("/queue/db-series")
async def db_series(desk: RequestContext, query: Range) -> tuple[StoreSeries, ...]:
    """How long the store took to answer each worker process."""
    since, until, step_s = await query.read(desk)
    hosts = await metrics.hosts(desk.store, since=since, until=until, step_s=step_s)
    return tuple(
        StoreSeries(
            host_id=host.host_id,
            label=host.label,
            step_s=host.step_s,
            points=tuple(
                StorePoint(at=point.at, exchange=point.exchange, errors=point.errors)
                for point in host.points
            ),
        )
        for host in hosts
    )
