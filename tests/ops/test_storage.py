"""Size and latency of the database, and the activity of queues."""

from forge_jobs.core.histogram import histogram
from forge_jobs.core.instant import MINUTE
from forge_jobs.core.vitals import Vitals
from forge_jobs.ops.queue_activity import queue_activity
from forge_jobs.ops.storage import read_storage
from tests.ops.harness import StoreHarness


async def test_queue_activity_counts_successes_and_failures(harness: StoreHarness) -> None:
    await harness.register_worker("mail", "video")
    await harness.enqueue(3)
    succeeded, failed, dead = await harness.claim(count=3)
    await harness.succeed(succeeded)
    await harness.fail(failed)
    await harness.kill(dead)
    await harness.enqueue(1, queue="video")
    lately = await queue_activity(harness.store, minutes=5, clock=harness.clock)
    assert list(lately) == ["mail"], "a queue in which nothing ended has no picture"
    assert [(minute.succeeded, minute.failed) for minute in lately["mail"]] == [(0, 0)] * 4 + [
        (1, 2)
    ]
    harness.clock.advance(120)
    later = await queue_activity(harness.store, minutes=5, clock=harness.clock)
    assert [(minute.succeeded, minute.failed) for minute in later["mail"]][2] == (1, 2)


async def test_store_latency_is_merged_by_minute_over_all_workers(harness: StoreHarness) -> None:
    now = harness.clock.now()
    at = now - now % MINUTE
    for host, took in (("01HOSTA", [0.001, 0.002]), ("01HOSTB", [0.4])):
        sample = Vitals(at=at, host_id=host, exchange=histogram(took), errors=1)
        await harness.store.metrics.record_vitals(sample)
    view = await read_storage(harness.store, minutes=3, clock=harness.clock)
    assert [(minute.took.count, minute.errors) for minute in view.minutes] == [
        (0, 0),
        (0, 0),
        (3, 2),
    ]
    assert view.took.count == 3
    assert view.minutes[-1].took.max_s == view.took.max_s
    assert view.total_bytes == sum(count for _, count in view.parts)
    assert (view.total_bytes > 0) is harness.store.capabilities.durable
