"""Time series over HTTP: jobs, worker resources and store latency."""

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct, field

from forge_jobs.ops import metrics
from forge_jobs.ops.capacity import MAX_MINUTES, Capacity, capacity
from forge_jobs.ops.metrics import DurationStats, HostSeries, KindView, Point, Series
from forge_jobs.ops.versions import VersionView, worker_versions
from forge_jobs.web.request_context import RequestContext

from .parameters import KindName, QueueName, Timestamp, time_range
from .route import Routes

routes = Routes()

_MINUTE_S: Final = 60
BucketSeconds = Annotated[int, Meta(ge=1, le=31_536_000)]


class RangeQuery(Struct, frozen=True, kw_only=True):
    """A time range in steps; by default the last hour by the minute."""

    since: Timestamp | None = field(default=None, name="from")
    until: Timestamp | None = field(default=None, name="to")
    bucket_secs: BucketSeconds = _MINUTE_S

    async def resolve(self, context: RequestContext) -> tuple[datetime, datetime, int]:
        """Start, end and step; the step is rounded up to whole minutes."""
        since, until = time_range(self.since, self.until, await context.now())
        return since, until, -(-self.bucket_secs // _MINUTE_S) * _MINUTE_S


class SeriesQuery(RangeQuery, frozen=True, kw_only=True):
    """A time range for one queue, one kind or both."""

    queue: QueueName | None = None
    kind: KindName | None = None


class StorePoint(Struct, frozen=True, kw_only=True):
    """Latency of the store for one step; ``errors`` are failed calls."""

    at: datetime
    exchange: DurationStats
    errors: int


class StoreSeries(Struct, frozen=True, kw_only=True):
    """Latency of the store as one worker process measured it."""

    host_id: str
    label: str
    step_s: int
    points: tuple[StorePoint, ...]


@routes.get("/queue/timeline")
async def timeline(context: RequestContext, query: RangeQuery) -> tuple[Point, ...]:
    """Counters over all queues; empty for an empty range."""
    since, until, step_s = await query.resolve(context)
    if until <= since:
        return ()
    series = await metrics.series(
        context.store, since=since, until=until, step_s=step_s, clock=context.clock
    )
    return series.points


@routes.get("/queue/metric-series")
async def metric_series(context: RequestContext, query: SeriesQuery) -> Series:
    """Counters, with percentiles of wait and run times."""
    since, until, step_s = await query.resolve(context)
    return await metrics.series(
        context.store,
        since=since,
        until=until,
        step_s=step_s,
        queue=query.queue,
        kind=query.kind,
        clock=context.clock,
    )


@routes.get("/queue/kind-series")
async def kind_series(context: RequestContext, query: RangeQuery) -> tuple[KindView, ...]:
    """Totals of the range for each queue and kind."""
    since, until, _ = await query.resolve(context)
    return await metrics.by_kind(context.store, since=since, until=until, clock=context.clock)


@routes.get("/queue/resource-series")
async def resource_series(context: RequestContext, query: RangeQuery) -> tuple[HostSeries, ...]:
    """Processor, memory and disk of every worker process."""
    since, until, step_s = await query.resolve(context)
    return await metrics.hosts(context.store, since=since, until=until, step_s=step_s)


@routes.get("/queue/db-series")
async def db_series(context: RequestContext, query: RangeQuery) -> tuple[StoreSeries, ...]:
    """Latency of the store for each worker process."""
    since, until, step_s = await query.resolve(context)
    hosts = await metrics.hosts(context.store, since=since, until=until, step_s=step_s)
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


class CapacityQuery(Struct, frozen=True, kw_only=True):
    """Over how many minutes up to now."""

    minutes: Annotated[int, Meta(ge=1, le=MAX_MINUTES)] = 10


@routes.get("/queue/capacity")
async def capacity_now(context: RequestContext, query: CapacityQuery) -> Capacity:
    """Whether the workers keep up: backlog, rates, utilisation and time to empty by queue and
    kind."""
    return await capacity(context.store, minutes=query.minutes, clock=context.clock)


@routes.get("/worker-versions")
async def versions(context: RequestContext) -> tuple[VersionView, ...]:
    """When each version of the workers was first seen, the oldest first."""
    return await worker_versions(context.store)
