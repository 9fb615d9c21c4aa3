"""Whether workers keep up, by queue and kind; charts mark the step that has not ended."""

from datetime import timedelta

import pytest

from forge_jobs.core.backlog import Trend
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import to_datetime
from forge_jobs.ops import metrics
from forge_jobs.ops.capacity import capacity, live_jobs, unfinished_at
from forge_jobs.ops.queries import overview
from forge_jobs.ops.versions import worker_versions
from forge_jobs.store.worker_versions import record_version
from tests.ops.harness import StoreHarness


async def test_a_growing_backlog_is_told_by_queue_and_kind(harness: StoreHarness) -> None:
    await harness.register_worker("mail", "video")
    await harness.enqueue(30)
    await harness.enqueue(4, kind="cut", queue="video")
    for job in await harness.claim("mail", 10):
        await harness.succeed(job)
    harness.clock.advance(90)
    seen = await capacity(harness.store, minutes=5, clock=harness.clock)
    by_queue = {row.queue: row for row in seen.queues}
    assert by_queue["mail"].trend is Trend.FALLING_BEHIND
    assert (by_queue["mail"].backlog, by_queue["mail"].empty_in_s) == (20, None)
    assert by_queue["video"].trend is Trend.STOPPED
    assert by_queue["video"].lag_s == 90.0
    assert {(row.kind, row.backlog) for row in seen.kinds} == {("send", 20), ("cut", 4)}
    await harness.register_worker("mail", host_id="01HOSTB")
    for job in await harness.claim("mail", 19):
        await harness.succeed(job)
    harness.clock.advance(120)
    [mail, _] = (await capacity(harness.store, minutes=3, clock=harness.clock)).queues
    assert mail.trend is Trend.CATCHING_UP
    assert mail.empty_in_s is not None
    assert 1 <= mail.empty_in_s <= 60
    with pytest.raises(BadOption, match="minutes=61 must lie between 1 and 60"):
        await capacity(harness.store, minutes=61)


async def test_the_longest_wait_is_told_while_jobs_are_held(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    await harness.enqueue(2, limit_key="tenant", hold=True)
    harness.clock.advance(47)
    seen = await overview(harness.store, clock=harness.clock)
    assert seen.lag_s == 47.0
    assert [queue.lag_s for queue in seen.queues] == [47.0]


async def test_only_the_step_that_has_not_ended_is_open(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    await harness.enqueue(3)
    harness.clock.advance(60)
    await harness.enqueue(2)
    until = to_datetime(harness.clock.now()) + timedelta(minutes=1)
    span = {"since": until - timedelta(minutes=3), "until": until, "clock": harness.clock}
    points = (await metrics.series(harness.store, **span)).points
    assert [point.open for point in points[-2:]] == [False, True]
    assert unfinished_at(points, await live_jobs(harness.store, queue="mail"))[-2:] == [3, 5]
    [earlier] = (
        await metrics.series(
            harness.store, **{**span, "until": span["since"] + timedelta(seconds=30)}
        )
    ).points
    assert not earlier.open


async def test_a_version_keeps_the_time_of_its_first_worker(harness: StoreHarness) -> None:
    first = harness.clock.now()
    for version in ("2.1", "2.2", "2.1"):
        await record_version(harness.store.settings, version)
        harness.clock.advance(60)
    seen = await worker_versions(harness.store)
    assert [(one.version, one.first_at) for one in seen] == [
        ("2.1", to_datetime(first)),
        ("2.2", to_datetime(first + 60_000_000)),
    ]
