"""Why a job is not running: an answer for each way of waiting."""

from forge_jobs.core.decide import decide
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Missing, Throttled
from forge_jobs.core.selection import Selection
from forge_jobs.ops import queries
from forge_jobs.ops.views import Reason
from forge_jobs.store.queues import QueueChange
from tests.ops.desk import Desk


async def why(desk: Desk, job_id: str) -> tuple[Reason, ...]:
    return (await queries.job(desk.store, job_id, clock=desk.clock)).why


async def codes(desk: Desk, job_id: str) -> list[str]:
    return [reason.code for reason in await why(desk, job_id)]


async def test_no_worker_serves_its_queue(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("video")
    (reason,) = await why(desk, job_id)
    assert reason.code == "no_worker"
    assert reason.remedy == "forge worker APP --queues mail"


async def test_its_queue_is_paused(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    await desk.operator.pause("mail")
    assert await codes(desk, job_id) == ["paused"]
    await desk.operator.resume("mail")
    assert await codes(desk, job_id) == ["next"]


async def test_its_queue_is_throttled_until_a_moment(desk: Desk) -> None:
    await desk.store.queues.ensure("mail", slots=10)
    _, job_id = await desk.some(2)
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    await desk.throttle(claimed, 30)
    (reason,) = await why(desk, job_id)
    assert reason.code == "throttled"
    assert reason.until == to_datetime(desk.clock.now() + 30_000_000)
    await desk.operator.unthrottle("mail")
    assert await codes(desk, job_id) == ["next"]


async def test_its_queue_has_no_slots(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    await desk.operator.set_queue("mail", QueueChange(slots=0))
    assert await codes(desk, job_id) == ["no_slots"]


async def test_every_worker_of_its_queue_is_quiet(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    await desk.operator.quiet("01HOSTA")
    assert await codes(desk, job_id) == ["quiet"]


async def test_several_reasons_are_all_told(desk: Desk) -> None:
    (job_id,) = await desk.some(1, delay_s=60)
    await desk.operator.pause("mail")
    assert await codes(desk, job_id) == ["scheduled", "paused", "no_worker"]


async def test_it_is_scheduled(desk: Desk) -> None:
    (job_id,) = await desk.some(1, delay_s=60)
    await desk.hire("mail")
    (reason,) = await why(desk, job_id)
    assert reason.code == "scheduled"
    assert reason.until == to_datetime(desk.clock.now() + 60_000_000)
    assert reason.remedy == f"forge jobs run-now {job_id}"


async def test_it_waits_for_its_retry(desk: Desk) -> None:
    (job_id,) = await desk.some(1, max_attempts=3)
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    await desk.fail(claimed)
    (reason,) = await why(desk, job_id)
    assert reason.code == "retry"
    assert "attempt 1 of 3 failed" in reason.text


async def test_nobody_knows_its_kind(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    await desk._exchange(finish=[decide(claimed, Missing(), now=desk.clock.now())])
    (reason,) = await why(desk, job_id)
    assert reason.code == "missing_kind"
    assert "'send'" in reason.text


async def test_it_hit_a_limit_itself(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    await desk.throttle(claimed, 30)
    assert (await codes(desk, job_id))[0] == "throttled_job"


async def test_it_is_held_by_a_limit(desk: Desk) -> None:
    (job_id,) = await desk.add(NewJob(kind="send", queue="mail", limit_key="smtp", hold=True))
    (reason,) = await why(desk, job_id)
    assert reason.code == "held"
    assert "'smtp'" in reason.text


async def test_others_are_before_it(desk: Desk) -> None:
    await desk.some(3)
    desk.clock.advance(1)
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    (reason,) = await why(desk, job_id)
    assert reason.code == "in_line"
    assert reason.text.startswith("3 pending jobs")


async def test_all_slots_are_busy(desk: Desk) -> None:
    await desk.store.queues.ensure("mail", slots=2)
    await desk.some(2)
    desk.clock.advance(1)
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    await desk.claim(count=2)
    (reason,) = await why(desk, job_id)
    assert reason.code == "busy"
    assert "all 2 slots" in reason.text


async def test_a_due_retry_waits_for_the_queue_like_any_other(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    await desk.fail(claimed)
    desk.clock.advance(20)
    assert await codes(desk, job_id) == ["no_worker"]


async def test_it_runs_or_is_being_stopped_or_lost_its_worker(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    await desk.claim()
    (reason,) = await why(desk, job_id)
    assert (reason.code, reason.text) == ("running", "it runs on web-worker-1-a (pid 7)")
    await desk.operator.cancel(Selection(ids=(job_id,)))
    assert await codes(desk, job_id) == ["stopping"]
    desk.clock.advance(16)
    assert await codes(desk, job_id) == ["owner_gone"]


async def test_it_has_ended(desk: Desk) -> None:
    (job_id,) = await desk.dead_jobs(1)
    (reason,) = await why(desk, job_id)
    assert reason.code == "ended"
    assert "it ended as dead at 20" in reason.text
    assert reason.remedy == f"forge jobs retry {job_id}"


async def test_its_key_is_full(desk: Desk) -> None:
    await desk.store.limits.publish([Declared(name="task:send", concurrency=1, per="args.to")])
    bound = NewJob(kind="send", queue="mail", limit_key=key_bucket("send", "a"))
    _, job_id = await desk.add(bound, bound)
    (reason,) = await why(desk, job_id)
    assert reason.code == "held"
    assert "'task:send/a' is full (1 of 1" in reason.text


async def test_it_waits_in_its_lane(desk: Desk) -> None:
    bound = NewJob(kind="send", queue="mail", lane="chat:7", order=LaneOrder.SERIAL)
    first, second, third = await desk.add(bound, bound, bound)
    for job_id in (second, third):
        (reason,) = await why(desk, job_id)
        assert (reason.code, reason.remedy) == ("lane", f"forge jobs show {first}")
        assert "'chat:7'" in reason.text


async def test_its_task_is_limited(desk: Desk) -> None:
    declared = Declared(name="task:send", concurrency=1, rate_per_s=0.1, scopes=("smtp",))
    await desk.store.limits.publish([declared])
    await desk.hire("mail")
    await desk.some(1)
    (claimed,) = await desk.claim()
    (job_id,) = await desk.some(1)
    found = {reason.code: reason.text for reason in await why(desk, job_id)}
    assert found == {
        "limit_full": "task:send runs 1 of at most 1 at once",
        "rate": "task:send starts no more than 6/m",
    }
    told = Throttled(retry_after=60, scope="smtp")
    await desk._exchange(finish=[decide(claimed, told, now=desk.clock.now())])
    reasons = await why(desk, job_id)
    assert [reason.code for reason in reasons] == ["scope_closed", "rate"]
    assert reasons[0].remedy == "forge limits clear smtp"
