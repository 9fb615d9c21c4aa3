"""Why a job is not running: one test per reason."""

from forge_jobs.core.decide import decide
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Missing, Throttled
from forge_jobs.core.selection import Selection
from forge_jobs.ops import queries
from forge_jobs.ops.views import Reason
from forge_jobs.store.queues import QueueChange
from tests.ops.harness import StoreHarness


async def why(harness: StoreHarness, job_id: str) -> tuple[Reason, ...]:
    return (await queries.job(harness.store, job_id, clock=harness.clock)).why


async def codes(harness: StoreHarness, job_id: str) -> list[str]:
    return [reason.code for reason in await why(harness, job_id)]


async def test_no_worker_serves_its_queue(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("video")
    (reason,) = await why(harness, job_id)
    assert reason.code == "no_worker"
    assert reason.remedy == "forge worker APP --queues mail"


async def test_its_queue_is_paused(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    await harness.actions.pause("mail")
    assert await codes(harness, job_id) == ["paused"]
    await harness.actions.resume("mail")
    assert await codes(harness, job_id) == ["next"]


async def test_its_queue_is_throttled_until_a_time(harness: StoreHarness) -> None:
    await harness.store.queues.ensure("mail", slots=10)
    _, job_id = await harness.enqueue(2)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    await harness.throttle(claimed, 30)
    (reason,) = await why(harness, job_id)
    assert reason.code == "throttled"
    assert reason.until == to_datetime(harness.clock.now() + 30_000_000)
    await harness.actions.unthrottle("mail")
    assert await codes(harness, job_id) == ["next"]


async def test_its_queue_has_no_slots(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    await harness.actions.set_queue("mail", QueueChange(slots=0))
    assert await codes(harness, job_id) == ["no_slots"]


async def test_every_worker_of_its_queue_is_quiet(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    await harness.actions.quiet("01HOSTA")
    assert await codes(harness, job_id) == ["quiet"]


async def test_several_reasons_are_all_returned(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1, delay_s=60)
    await harness.actions.pause("mail")
    assert await codes(harness, job_id) == ["scheduled", "paused", "no_worker"]


async def test_it_is_scheduled(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1, delay_s=60)
    await harness.register_worker("mail")
    (reason,) = await why(harness, job_id)
    assert reason.code == "scheduled"
    assert reason.until == to_datetime(harness.clock.now() + 60_000_000)
    assert reason.remedy == f"forge jobs run-now {job_id}"


async def test_it_waits_for_its_retry(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1, max_attempts=3)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    await harness.fail(claimed)
    (reason,) = await why(harness, job_id)
    assert reason.code == "retry"
    assert "attempt 1 of 3 failed" in reason.text


async def test_no_worker_registers_its_kind(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    await harness._exchange(finish=[decide(claimed, Missing(), now=harness.clock.now())])
    (reason,) = await why(harness, job_id)
    assert reason.code == "missing_kind"
    assert "'send'" in reason.text


async def test_u4_its_arguments_fit_another_version_only(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    refusal = Missing("task 'send': unknown argument 'cc'; it takes (to: str)", elsewhere=True)
    await harness._exchange(finish=[decide(claimed, refusal, now=harness.clock.now())])
    (reason,) = await why(harness, job_id)
    assert reason.code == "other_version"
    assert "refused it: task 'send': unknown argument 'cc'; it takes (to: str);" in reason.text
    assert "takes these arguments" in (reason.remedy or "")


async def test_it_hit_a_limit_itself(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    await harness.throttle(claimed, 30)
    assert (await codes(harness, job_id))[0] == "throttled_job"


async def test_it_is_held_by_a_limit(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue_jobs(
        NewJob(kind="send", queue="mail", limit_key="smtp", hold=True)
    )
    (reason,) = await why(harness, job_id)
    assert reason.code == "held"
    assert "'smtp'" in reason.text


async def test_older_jobs_are_before_it(harness: StoreHarness) -> None:
    await harness.enqueue(3)
    harness.clock.advance(1)
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    (reason,) = await why(harness, job_id)
    assert reason.code == "in_line"
    assert reason.text.startswith("3 pending jobs")


async def test_all_slots_are_busy(harness: StoreHarness) -> None:
    await harness.store.queues.ensure("mail", slots=2)
    await harness.enqueue(2)
    harness.clock.advance(1)
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    await harness.claim(count=2)
    (reason,) = await why(harness, job_id)
    assert reason.code == "busy"
    assert "all 2 slots" in reason.text


async def test_a_due_retry_waits_for_the_queue_like_any_other(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    await harness.fail(claimed)
    harness.clock.advance(20)
    assert await codes(harness, job_id) == ["no_worker"]


async def test_it_runs_or_is_being_stopped_or_lost_its_worker(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    await harness.claim()
    (reason,) = await why(harness, job_id)
    assert (reason.code, reason.text) == ("running", "it runs on web-worker-1-a (pid 7)")
    await harness.actions.cancel(Selection(ids=(job_id,)))
    assert await codes(harness, job_id) == ["stopping"]
    harness.clock.advance(16)
    assert await codes(harness, job_id) == ["owner_gone"]


async def test_it_has_ended(harness: StoreHarness) -> None:
    (job_id,) = await harness.dead_jobs(1)
    (reason,) = await why(harness, job_id)
    assert reason.code == "ended"
    assert "it ended as dead at 20" in reason.text
    assert reason.remedy == f"forge jobs retry {job_id}"


async def test_its_key_is_full(harness: StoreHarness) -> None:
    await harness.store.limits.publish([Declared(name="task:send", concurrency=1, per="args.to")])
    bound = NewJob(kind="send", queue="mail", limit_key=key_bucket("send", "a"))
    _, job_id = await harness.enqueue_jobs(bound, bound)
    (reason,) = await why(harness, job_id)
    assert reason.code == "held"
    assert "'task:send/a' is full (1 of 1" in reason.text


async def test_it_waits_in_its_lane(harness: StoreHarness) -> None:
    bound = NewJob(kind="send", queue="mail", lane="chat:7", order=LaneOrder.SERIAL)
    first, second, third = await harness.enqueue_jobs(bound, bound, bound)
    for job_id in (second, third):
        (reason,) = await why(harness, job_id)
        assert (reason.code, reason.remedy) == ("lane", f"forge jobs show {first}")
        assert "'chat:7'" in reason.text


async def test_its_task_is_limited(harness: StoreHarness) -> None:
    declared = Declared(name="task:send", concurrency=1, rate_per_s=0.1, scopes=("smtp",))
    await harness.store.limits.publish([declared])
    await harness.register_worker("mail")
    await harness.enqueue(1)
    (claimed,) = await harness.claim()
    (job_id,) = await harness.enqueue(1)
    found = {reason.code: reason.text for reason in await why(harness, job_id)}
    assert found == {
        "limit_full": "task:send runs 1 of at most 1 at once",
        "rate": "task:send starts no more than 6/m",
    }
    outcome = Throttled(retry_after=60, scope="smtp")
    await harness._exchange(finish=[decide(claimed, outcome, now=harness.clock.now())])
    reasons = await why(harness, job_id)
    assert [reason.code for reason in reasons] == ["scope_closed", "rate"]
    assert reasons[0].remedy == "forge limits clear smtp"
