"""Charts that are read in segments equal the counters, and say whether they are complete."""

import asyncio
from datetime import UTC, datetime, timedelta

from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.ops import metrics
from forge_jobs.ops.chart_cache import ChartCache
from tests.ops.harness import StoreHarness

DEADLINE_S = 30


async def test_a_chart_is_read_in_segments_and_equals_the_series_in_the_end(
    harness: StoreHarness,
) -> None:
    await harness.register_worker("mail", "video")
    for minutes in (200, 55, 31, 3, 0):
        await harness.enqueue(minutes + 1)
        for job in await harness.claim("mail", minutes // 2 + 1):
            await harness.succeed(job)
        harness.clock.advance(60 * minutes / 2)
    until = datetime.fromtimestamp(harness.clock.now() // 1_000_000, UTC) + timedelta(minutes=1)
    until = until.replace(second=0, microsecond=0)
    cache = ChartCache(SYSTEM_CLOCK)
    for length, step_s in ((60, 60), (240, 600), (360, 3_600)):
        span = {"since": until - timedelta(minutes=length), "until": until, "step_s": step_s}
        complete = (await metrics.series(harness.store, **span)).points
        assert sum(point.enqueued for point in complete) > 0
        first = await cache.chart(harness.store, **span, budget_s=0)
        assert not first.complete
        assert first.points == complete[-len(first.points) :]
        async with asyncio.timeout(DEADLINE_S):
            while not (chart := await cache.chart(harness.store, **span, budget_s=0)).complete:
                await asyncio.sleep(0.01)
        assert chart.points == complete
    await cache.close()


async def test_a_large_budget_reads_all_segments_at_once(harness: StoreHarness) -> None:
    await harness.enqueue(3)
    until = datetime.fromtimestamp(harness.clock.now() // 1_000_000, UTC) + timedelta(minutes=1)
    cache = ChartCache(SYSTEM_CLOCK)
    chart = await cache.chart(
        harness.store, since=until - timedelta(minutes=20), until=until, step_s=60, budget_s=60
    )
    assert chart.complete
    assert sum(point.enqueued for point in chart.points) == 3
