"""How a schedule does: runs with results, gaps, next times, and why it does not run."""

import pytest

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import MINUTE, SECOND, to_datetime
from forge_jobs.core.job import NewJob
from forge_jobs.core.parent import with_schedule
from forge_jobs.ops.schedule_runs import TickResult, schedule_runs
from forge_jobs.store.schedules import NewFire, Schedule
from tests.ops.harness import StoreHarness


async def set_up(harness: StoreHarness, **fields: object) -> int:
    """A schedule of every minute; its next tick, which is now."""
    wait_s = (MINUTE - harness.clock.now() % MINUTE) / SECOND
    harness.clock.advance(wait_s)
    await harness.register_worker("mail")
    await harness.store.queues.publish({"send": "mail"})
    next_at = harness.clock.now()
    values = {"name": "often", "expression": "* * * * *", "kind": "send", "next_at": next_at}
    await harness.store.schedules.put(Schedule(**{**values, **fields}))  # type: ignore[arg-type]
    return next_at


async def fire(
    harness: StoreHarness, tick: int, *, missed: int = 0, key: str | None = None
) -> None:
    job = with_schedule(NewJob(kind="send", queue="mail", dedupe_key=key), "often")
    fires = await harness.store.schedules.fire(
        "often", tick=tick, next_at=tick + MINUTE, new_fires=[NewFire(tick, job, missed)]
    )
    assert fires is not None


async def codes(harness: StoreHarness) -> list[str]:
    found = await schedule_runs(harness.store, "often", clock=harness.clock)
    return [reason.code for reason in found.why_not]


async def test_runs_have_results_durations_and_gaps(harness: StoreHarness) -> None:
    tick = await set_up(harness)
    await fire(harness, tick)
    [job] = await harness.claim()
    harness.clock.advance(4)
    await harness.succeed(job)
    await fire(harness, tick + MINUTE, missed=2)
    [job] = await harness.claim()
    await harness.kill(job, "no paper")
    await fire(harness, tick + 2 * MINUTE)
    found = await schedule_runs(harness.store, "often", clock=harness.clock)
    assert [(run.state, run.missed) for run in found.runs] == [
        (TickResult.DONE, 0), (TickResult.DEAD, 2), (TickResult.WAITING, 0),
    ]  # fmt: skip
    assert (found.runs[0].ran_s, found.runs[1].error) == (4.0, "no paper")
    assert found.words == "every minute"
    assert found.next == tuple(to_datetime(tick + (3 + n) * MINUTE) for n in range(5))
    assert found.why_not == ()


async def test_why_it_does_not_run(harness: StoreHarness) -> None:
    tick = await set_up(harness)
    await fire(harness, tick, key="often")
    assert await codes(harness) == []
    await fire(harness, tick + MINUTE, key="often")
    assert await codes(harness) == ["overlap"]
    await harness.actions.pause("mail")
    assert await codes(harness) == ["paused", "overlap"]
    await harness.actions.resume("mail")
    await fire(harness, tick + 2 * MINUTE, missed=3)
    assert await codes(harness) == ["missed"]
    harness.clock.advance(10 * 60)
    await harness.register_worker("video", host_id="01HOSTB")
    assert await codes(harness) == ["overdue", "no_worker", "missed"]


async def test_a_disabled_schedule_has_no_next_time(harness: StoreHarness) -> None:
    await set_up(harness, enabled=False, next_at=None, kind="unknown")
    found = await schedule_runs(harness.store, "often", clock=harness.clock)
    assert [reason.code for reason in found.why_not] == ["disabled", "missing_kind"]
    assert (found.next, found.runs) == ((), ())
    with pytest.raises(NotFound, match="there is no schedule 'never'"):
        await schedule_runs(harness.store, "never")
