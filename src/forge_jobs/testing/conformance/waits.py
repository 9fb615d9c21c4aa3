"""Waits: a job is suspended until an event is sent or its time has come, and is decided once."""

import pytest

from forge_jobs.core.events import Wait
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Parked
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import StepAnswer, Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .step_requests import (
    check_wait,
    event,
    history,
    kinds,
    park,
    send,
    status_of,
    step,
    suspended,
    taken,
    topic,
    topics_of,
    wait,
)
from .store import NotificationProbe
from .worker import Process, claim_of, enqueue, job_counts, record

APPLIED, ALREADY, STALE = Verdict.APPLIED, Verdict.ALREADY, Verdict.STALE


def minutes_later(clock: MovableClock, minutes: int) -> int:
    """The instant so many minutes from now."""
    return clock.now() + minutes * 60 * SECOND


@pytest.mark.asyncio
class TestWaitChecks:
    """``Exchange.waits``."""

    async def test_without_an_event_the_answer_has_no_record(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        assert await check_wait(worker, job, wait()) == StepAnswer(APPLIED)
        assert await history(store, answer.id) == {}
        assert await topics_of(store, answer.id) == []

    async def test_an_event_that_is_there_is_stored_as_a_step(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        sent_at = clock.now()
        assert await send(store, payload=b'{"amount":12}') == 0
        await worker.advance(5)
        reply = await check_wait(worker, job, wait(began_at=77))
        assert (reply.verdict, reply.record) == (ALREADY, (await history(store, answer.id))["wait"])
        found = reply.record
        assert found is not None
        assert (found.kind, found.epoch, found.began_at) == (StepKind.EVENT, job.epoch, 77)
        assert found.ended_at == clock.now()
        assert found.size == len(found.value or b"")
        got = taken(found)
        assert (got.name, got.key, got.sent_at) == ("paid", "1", sent_at)
        assert bytes(got.payload) == b'{"amount":12}'
        assert got.seq > 0

    async def test_a_stored_step_of_that_name_is_the_answer(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        await send(store)
        first = await check_wait(worker, job, wait())
        await send(store)
        assert await check_wait(worker, job, wait()) == first

    async def test_a_stale_claim_takes_nothing(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await send(store)
        await worker.exchange(release=[claim_of(job)])
        assert await check_wait(worker, job, wait()) == StepAnswer(STALE)
        assert await history(store, answer.id) == {}


@pytest.mark.asyncio
class TestSuspend:
    """SUSPEND and RESUME."""

    async def test_a_suspended_job_is_resumed_exactly_once(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await suspended(store, worker)
        assert (await record(store, answer.id)).attempts == 0
        assert await topics_of(store, answer.id) == [("paid", "1")]
        assert await worker.claim() == []
        await worker.advance(100)
        assert await send(store, payload=b"1") == 1
        found = await record(store, answer.id)
        assert (found.status, found.run_at, found.has_steps) == (
            JobStatus.PENDING, clock.now(), True,
        )  # fmt: skip
        assert await topics_of(store, answer.id) == []
        assert await send(store, payload=b"2") == 0
        job = await worker.claim_one()
        assert await worker.claim() == []
        assert job.attempts == 1
        assert job.steps is not None
        [kept] = job.steps.records
        assert bytes(taken(kept).payload) == b"1"

    async def test_other_topics_do_not_resume_it(self, store: Store, worker: Process) -> None:
        answer = await suspended(store, worker)
        for name, key in (("paid", "2"), ("paid", ""), ("shipped", "1"), ("PAID", "1")):
            assert await send(store, name, key) == 0
        assert await status_of(store, answer.id) is JobStatus.SUSPENDED

    async def test_an_event_sent_before_the_park_makes_it_pending(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        assert await check_wait(worker, job, wait()) == StepAnswer(APPLIED)
        await send(store)
        await worker.advance(1)
        assert await worker.finish(job, Parked(wait(), None, (step(job, "s"),))) is APPLIED
        found = await record(store, answer.id)
        assert (found.status, found.attempts) == (JobStatus.PENDING, 0)
        assert found.run_at == clock.now()
        assert await kinds(store, answer.id) == {"s": StepKind.STEP, "wait": StepKind.EVENT}
        assert await topics_of(store, answer.id) == []

    async def test_a_park_whose_wait_is_decided_is_pending(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await send(store)
        await check_wait(worker, job, wait())
        await park(worker, job)
        assert await status_of(store, answer.id) is JobStatus.PENDING

    async def test_a_repeated_park_is_already_and_changes_nothing(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await park(worker, job)
        assert await worker.finish(job, Parked(wait(), None)) is ALREADY
        await send(store)
        assert await worker.finish(job, Parked(wait(), None)) is ALREADY
        assert await status_of(store, answer.id) is JobStatus.PENDING

    async def test_park_and_claim_of_another_job_in_one_exchange(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        other = await enqueue(store)
        job = await worker.claim_one()
        finish = worker.build_finish(job, Parked(wait(), None))
        reply = await worker.exchange(finish=[finish], want=[Want("q", 2)])
        assert [one.key for one in reply.claims] == [other.key]
        counts = {("q", JobStatus.SUSPENDED): 1, ("q", JobStatus.RUNNING): 1}
        assert await job_counts(store) == counts

    async def test_resumed_jobs_notify_their_queue(self, store: Store, worker: Process) -> None:
        await suspended(store, worker)
        probe = NotificationProbe()
        subscription = await store.subscribe(["q"], probe.notify)
        await send(store)
        assert await probe.notified()
        await subscription.close()

    async def test_one_wait_on_two_topics_is_decided_once(
        self, store: Store, worker: Process
    ) -> None:
        both = wait(topic("shipped", "1"), topic("lost", "1"))
        answer = await suspended(store, worker, both)
        assert await topics_of(store, answer.id) == [("lost", "1"), ("shipped", "1")]
        assert await send(store, "lost") == 1
        assert await send(store, "shipped") == 0
        assert await topics_of(store, answer.id) == []
        assert taken((await history(store, answer.id))["wait"]).name == "lost"

    async def test_of_several_topics_the_oldest_event_is_taken(
        self, store: Store, worker: Process
    ) -> None:
        await store.events.send([event("b"), event("a")])
        await enqueue(store)
        job = await worker.claim_one()
        reply = await check_wait(worker, job, wait(topic("a"), topic("b")))
        assert taken(reply.record).name == "b"

    async def test_hostile_names_and_keys(self, store: Store, worker: Process) -> None:
        for number, key in enumerate(("a'b\"\\", "%s $1", "é → 🎉", "k" * 512, "x_y%", "")):
            asked = wait(topic("ev.x:y-z", key), name=f"w\x1f{key}")
            answer = await suspended(store, worker, asked, queue=f"q{number}")
            assert await topics_of(store, answer.id) == [("ev.x:y-z", key)]
            assert await send(store, "ev.x:y-z", key) == 1
            assert list(await kinds(store, answer.id)) == [f"w\x1f{key}"]


@pytest.mark.asyncio
class TestDeadlines:
    """A suspended job whose time has come."""

    async def test_a_deadline_that_passed_is_stored_as_a_timeout(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        deadline = minutes_later(clock, 1)
        asked = wait(began_at=5, deadline=deadline)
        answer = await suspended(store, worker, asked)
        assert (await record(store, answer.id)).run_at == deadline
        await worker.advance(59)
        assert await worker.claim() == []
        await worker.advance(1)
        job = await worker.claim_one()
        assert job.steps is not None
        [found] = job.steps.records
        assert (found.name, found.kind, found.began_at) == ("wait", StepKind.TIMEOUT, 5)
        assert await topics_of(store, answer.id) == []
        assert await send(store) == 0
        assert (await check_wait(worker, job, asked)).record == found

    async def test_promote_does_the_same_for_all_queues(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        asked = wait(deadline=minutes_later(clock, 1))
        answers = [await suspended(store, worker, asked, queue=queue) for queue in ("a", "b")]
        first = await store.jobs.promote(limit=10)
        assert (first.promoted, first.next_due) == (0, asked.deadline)
        await worker.advance(60)
        done = await store.jobs.promote(limit=10)
        assert (done.promoted, done.next_due, done.more) == (2, None, False)
        for answer in answers:
            assert await status_of(store, answer.id) is JobStatus.PENDING
            assert await kinds(store, answer.id) == {"wait": StepKind.TIMEOUT}

    async def test_without_a_deadline_it_waits_for_ever(
        self, store: Store, worker: Process
    ) -> None:
        answer = await suspended(store, worker)
        await worker.advance(400 * 86_400)
        done = await store.jobs.promote(limit=10)
        assert (done.promoted, done.next_due) == (0, None)
        reply = await worker.exchange(want=[Want("q", 1)])
        assert (list(reply.claims), reply.next_due) == ([], None)
        assert await status_of(store, answer.id) is JobStatus.SUSPENDED
        assert (await record(store, answer.id)).run_at > worker.clock.now()

    async def test_a_worker_is_told_when_the_next_deadline_comes(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        deadline = minutes_later(clock, 3)
        await suspended(store, worker, wait(deadline=deadline))
        assert (await worker.exchange(want=[Want("q", 1)])).next_due == deadline

    async def test_an_event_sent_by_the_deadline_wins_over_a_later_promotion(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        """The event is not delivered to this job by the sender: too many wait before it."""
        jobs = [await enqueue(store) for _ in range(501)]
        asked = wait(deadline=minutes_later(clock, 1))
        await _park_all(worker, asked, 501)
        assert await send(store, payload=b"1") == 500
        await worker.advance(120)
        await store.jobs.promote(limit=1_000)
        assert await job_counts(store) == {("q", JobStatus.PENDING): 501}
        found = [(await history(store, job.id))["wait"] for job in jobs]
        assert {one.kind for one in found} == {StepKind.EVENT}

    async def test_an_event_sent_after_the_deadline_does_not_win_over_the_promotion(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        """The sender resumes 500 of 501 jobs; the deadline of the last one has passed."""
        jobs = [await enqueue(store) for _ in range(501)]
        await _park_all(worker, wait(deadline=minutes_later(clock, 1)), 501)
        await worker.advance(120)
        assert await send(store) == 500
        await store.jobs.promote(limit=1_000)
        found = [(await history(store, job.id))["wait"].kind for job in jobs]
        assert (found.count(StepKind.EVENT), found.count(StepKind.TIMEOUT)) == (500, 1)

    async def test_a_wake_before_the_deadline_stores_nothing(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        """A sleep that ends while the job waits."""
        asked = wait(deadline=minutes_later(clock, 10))
        wake_at = minutes_later(clock, 1)
        answer = await suspended(store, worker, asked, wake_at=wake_at)
        assert (await record(store, answer.id)).run_at == wake_at
        await worker.advance(60)
        job = await worker.claim_one()
        assert job.steps is not None
        assert job.steps.records == ()
        assert await topics_of(store, answer.id) == []
        await park(worker, job, asked)
        assert await send(store) == 1
        assert await kinds(store, answer.id) == {"wait": StepKind.EVENT}


async def _park_all(worker: Process, asked: Wait, jobs: int) -> None:
    claims = await worker.claim(free=jobs)
    assert len(claims) == jobs
    finishes = [worker.build_finish(job, Parked(asked, asked.deadline)) for job in claims]
    assert set(await worker.send_finishes(*finishes)) == {APPLIED}


@pytest.mark.asyncio
class TestSuspendedLimits:
    """Lanes and limit keys of suspended jobs."""

    async def test_a_suspended_head_holds_a_strict_lane(
        self, store: Store, worker: Process
    ) -> None:
        await suspended(store, worker, lane="a", order=LaneOrder.STRICT)
        younger = await enqueue(store, lane="a", order=LaneOrder.STRICT)
        assert await worker.claim() == []
        assert await status_of(store, younger.id) is JobStatus.HELD
        await send(store)
        head = await worker.claim_one()
        assert await worker.claim() == []
        await worker.send_finishes(worker.build_finish(head))
        assert (await worker.claim_one()).key == younger.key

    async def test_a_suspended_job_lets_the_next_of_a_serial_lane_run(
        self, store: Store, worker: Process
    ) -> None:
        first = await enqueue(store, lane="a", order=LaneOrder.SERIAL)
        second = await enqueue(store, lane="a", order=LaneOrder.SERIAL)
        job = await worker.claim_one()
        await park(worker, job)
        running = await worker.claim_one()
        assert running.key == second.key
        assert await send(store) == 1
        assert await worker.claim() == []
        assert await status_of(store, first.id) is JobStatus.HELD
        await worker.send_finishes(worker.build_finish(running))
        assert (await worker.claim_one()).key == first.key

    async def test_a_suspended_job_gives_up_its_slot_of_a_limit_key(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish([Declared(name="task:fetch", concurrency=1, per="args.host")])
        key = key_bucket("fetch", "x")
        first = await enqueue(store, kind="fetch", limit_key=key)
        second = await enqueue(store, kind="fetch", limit_key=key)
        job = await worker.claim_one()
        assert await status_of(store, second.id) is JobStatus.HELD
        await park(worker, job)
        running = await worker.claim_one()
        assert running.key == second.key
        await send(store)
        assert await status_of(store, first.id) is JobStatus.HELD
        await worker.send_finishes(worker.build_finish(running))
        assert (await worker.claim_one()).key == first.key
