"""The database as operators watch it, and the last minutes of queues."""

from forge_jobs.core.histogram import histogram
from forge_jobs.core.instant import MINUTE
from forge_jobs.core.vitals import Vitals
from forge_jobs.ops.queue_activity import flows
from forge_jobs.ops.storage import storage
from tests.ops.desk import Desk


async def test_queues_show_what_went_well_and_what_did_not(desk: Desk) -> None:
    await desk.hire("mail", "video")
    await desk.some(3)
    good, bad, dead = await desk.claim(count=3)
    await desk.succeed(good)
    await desk.fail(bad)
    await desk.kill(dead)
    await desk.some(1, queue="video")
    lately = await flows(desk.store, minutes=5, clock=desk.clock)
    assert list(lately) == ["mail"], "a queue in which nothing ended has no picture"
    assert [(minute.good, minute.bad) for minute in lately["mail"]] == [(0, 0)] * 4 + [(1, 2)]
    desk.clock.advance(120)
    later = await flows(desk.store, minutes=5, clock=desk.clock)
    assert [(minute.good, minute.bad) for minute in later["mail"]][2] == (1, 2)


async def test_the_store_is_told_by_minute_over_all_workers(desk: Desk) -> None:
    now = desk.clock.now()
    at = now - now % MINUTE
    for host, took in (("01HOSTA", [0.001, 0.002]), ("01HOSTB", [0.4])):
        told = Vitals(at=at, host_id=host, exchange=histogram(took), errors=1)
        await desk.store.metrics.record_vitals(told)
    seen = await storage(desk.store, minutes=3, clock=desk.clock)
    assert [(minute.took.count, minute.errors) for minute in seen.minutes] == [
        (0, 0),
        (0, 0),
        (3, 2),
    ]
    assert seen.took.count == 3
    assert seen.minutes[-1].took.max_s == seen.took.max_s
    assert seen.total_bytes == sum(count for _, count in seen.parts)
    assert (seen.total_bytes > 0) is desk.store.capabilities.durable
