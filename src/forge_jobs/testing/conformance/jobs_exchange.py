"""The hot call: which jobs it claims in which order, and the rest of its reply."""

import asyncio

import pytest

from forge_jobs.core.instant import SECOND
from forge_jobs.core.outcome import Done, Failed, Snooze, Throttled
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Verdict, Want
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, enqueue, job_counts, new_job, record


@pytest.mark.asyncio
class TestClaims:
    """Which jobs an exchange claims, and in which order."""

    async def test_order_is_priority_then_due_time_then_age(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        start = clock.now()
        wanted = ["low", "early", "first", "second", "late", "high"]
        requests = {
            "high": {"priority": 9},
            "late": {"run_at": start + 2 * SECOND},
            "first": {"run_at": start + SECOND},
            "early": {"run_at": start - SECOND},
            "low": {"priority": -9, "run_at": start + 3 * SECOND},
            "second": {"run_at": start + SECOND},
        }
        await store.jobs.enqueue(
            [new_job(kind=kind, **options) for kind, options in requests.items()]
        )
        clock.advance(5)
        assert [job.kind for job in await worker.claim(free=10)] == wanted

    async def test_equals_come_first_in_first_out(self, store: Store, worker: Process) -> None:
        for n in range(30):
            await enqueue(store, kind=f"k{n:02}")
        first = await worker.claim(free=12)
        second = await worker.claim(free=100)
        assert [job.kind for job in first + second] == [f"k{n:02}" for n in range(30)]

    async def test_each_want_is_served_from_its_own_queue(
        self, store: Store, worker: Process
    ) -> None:
        for n in range(12):
            await enqueue(store, kind=f"k{n}", queue=f"q{n % 4}")
        answer = await worker.exchange(want=[Want("q1", 2), Want("q3", 10), Want("none", 5)])
        got: dict[str, list[str]] = {}
        for job in answer.claims:
            got.setdefault(job.queue, []).append(job.kind)
        assert got == {"q1": ["k1", "k5"], "q3": ["k3", "k7", "k11"]}

    async def test_a_want_for_some_kinds_leaves_the_others_pending(
        self, store: Store, worker: Process
    ) -> None:
        for n in range(12):
            await enqueue(store, kind=f"k{n % 4}", priority=-n)
        answer = await worker.exchange(
            want=[Want("q", 2, 1, ("k1", "k3")), Want("q", 9, 0, ("none",)), Want("q", 1)]
        )
        # In claim order: the newest job here has the highest priority.
        assert sorted((job.kind, job.priority) for job in answer.claims) == [
            ("k1", -9), ("k2", -10), ("k3", -11), ("k3", -7),
        ]  # fmt: skip
        assert sorted(job.priority for job in answer.claims if not job.started) == [-7]
        rest = [job.priority for job in await worker.claim(free=20)]
        assert rest == [-8, -6, -5, -4, -3, -2, -1, 0]

    async def test_a_want_for_some_kinds_promotes_them_and_passes_over_the_expired(
        self, store: Store, worker: Process
    ) -> None:
        late = await enqueue(store, kind="a", delay_s=5.0, expires_s=6.0)
        due = await enqueue(store, kind="a", delay_s=5.0)
        await worker.advance(7)
        answer = await worker.exchange(want=[Want("q", 5, 0, ("a", "b"))])
        assert [job.key for job in answer.claims] == [due.key]
        await store.jobs.promote(limit=10)
        assert (await record(store, late.id)).status is JobStatus.CANCELLED

    async def test_exchange_sync_does_what_exchange_does(
        self, store: Store, worker: Process
    ) -> None:
        if not store.capabilities.sync_calls:
            return
        answer = await enqueue(store)
        ask = Exchange(owner=worker.key, number=1, want=[Want("q", 1)])
        [job] = (await asyncio.to_thread(store.exchange_sync, ask)).claims
        assert job.key == answer.key
        request = Exchange(owner=worker.key, number=2, finish=[worker.build_finish(job)])
        reply = await asyncio.to_thread(store.exchange_sync, request)
        assert list(reply.verdicts) == [Verdict.APPLIED]
        assert (await record(store, answer.id)).status is JobStatus.DONE

    async def test_no_room_claims_nothing(self, store: Store, worker: Process) -> None:
        await enqueue(store)
        assert await worker.claim(free=0, prefetch=0) == []
        assert (await worker.exchange()).claims in ([], ())

    async def test_a_claim_has_what_a_worker_needs(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answer = await enqueue(
            store,
            payload=b'{"a":1}',
            priority=3,
            max_attempts=7,
            timeout_s=1.5,
            tags=("x", "y"),
            limit_key="host:a",
            trace="00-t",
        )
        clock.advance(2)
        job = await worker.claim_one()
        assert (job.key, job.epoch, job.attempts, job.max_attempts) == (answer.key, 1, 1, 7)
        assert (job.kind, job.queue, job.payload) == ("work", "q", b'{"a":1}')
        assert (job.priority, job.crashes, job.timeout_s) == (3, 0, 1.5)
        assert (job.tags, job.limit_key, job.trace) == (("x", "y"), "host:a", "00-t")
        assert job.enqueued_at == job.run_at == clock.now() - 2 * SECOND
        assert (job.throttled_since, job.missing_since) == (None, None)
        stored = await record(store, answer.id)
        assert (stored.owner, stored.epoch, stored.attempts) == (worker.key, 1, 1)
        assert stored.started_at == clock.now()

    async def test_the_first_free_claims_are_started_the_rest_prefetched(
        self, store: Store, worker: Process
    ) -> None:
        answers = await store.jobs.enqueue([new_job() for _ in range(5)])
        claims = await worker.claim(free=2, prefetch=2)
        assert [job.started for job in claims] == [True, True, False, False]
        stored = [await record(store, answer.id) for answer in answers]
        assert [job.started_at is not None for job in stored] == [True, True, False, False, False]
        assert [job.status for job in stored][4] is JobStatus.PENDING

    async def test_two_workers_never_get_the_same_job(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        await store.jobs.enqueue([new_job() for _ in range(80)])
        rounds = await asyncio.gather(
            *(who.claim(free=9) for who in (worker, other) for _ in range(5))
        )
        keys = [job.key for claims in rounds for job in claims]
        assert len(keys) == len(set(keys)) == 80

    async def test_due_jobs_are_promoted_by_the_claim(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(delay_s=5.0) for _ in range(500)])
        assert await worker.claim(free=1000) == []
        clock.advance(5)
        assert len(await worker.claim(free=1000)) == 500

    async def test_a_failed_job_comes_back_when_its_time_has_come(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store)
        await worker.finish(await worker.claim_one(), Failed("x"))
        clock.advance(10)
        assert await worker.claim() == []
        await worker.advance(10)
        assert (await worker.claim_one()).attempts == 2

    async def test_a_paused_queue_gives_nothing(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=10)
        await enqueue(store)
        await enqueue(store, queue="open")
        await store.queues.change("q", QueueChange(paused=True))
        answer = await worker.exchange(want=[Want("q", 5), Want("open", 5)])
        assert [job.queue for job in answer.claims] == ["open"]
        await store.queues.change("q", QueueChange(paused=False))
        assert len(await worker.claim()) == 1

    async def test_a_paused_queue_still_takes_finishes(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=10)
        answer = await enqueue(store)
        job = await worker.claim_one()
        await store.queues.change("q", QueueChange(paused=True))
        await worker.finish(job, Done())
        assert (await record(store, answer.id)).status is JobStatus.DONE

    @pytest.mark.parametrize("state", ["unknown", "expired", "declared dead", "left"])
    async def test_a_process_that_is_not_alive_claims_nothing(
        self, store: Store, clock: MovableClock, worker: Process, state: str
    ) -> None:
        await enqueue(store)
        if state == "unknown":
            worker.key += 1000
        elif state == "left":
            await store.processes.deregister(worker.key)
        else:
            clock.advance(LEASE_S + 1)
            if state == "declared dead":
                await store.jobs.reap(crash_note="x", limit=10)
                await worker.heartbeat()
        answer = await worker.exchange(want=[Want("q", 1, 1)])
        assert not answer.alive
        assert list(answer.claims) == []
        assert await job_counts(store) == {("q", JobStatus.PENDING): 1}

    async def test_a_successor_can_be_claimed_in_the_same_exchange(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        answer = await worker.exchange(
            finish=[worker.build_finish(job, jobs=(new_job(kind="next"),))], want=[Want("q", 1)]
        )
        assert [claim.kind for claim in answer.claims] == ["next"]


@pytest.mark.asyncio
class TestReplies:
    """The fields of the reply besides claims."""

    async def test_the_time_is_the_stores(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        clock.advance(3)
        answer = await worker.exchange()
        assert (answer.now, answer.alive) == (clock.now(), True)

    async def test_the_control_version_is_the_same_everywhere(
        self, store: Store, worker: Process
    ) -> None:
        await store.queues.ensure("q", slots=3)
        control = await store.processes.control(worker.key)
        assert (await worker.exchange()).control_version == control.version

    async def test_next_due_is_the_earliest_wait_of_a_short_queue(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store, delay_s=60.0)
        await enqueue(store, delay_s=30.0)
        await enqueue(store, delay_s=5.0, queue="other")
        answer = await worker.exchange(want=[Want("q", 1)])
        assert answer.next_due == clock.now() + 30 * SECOND

    async def test_next_due_knows_retries_and_snoozes(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(), new_job()])
        first, second = await worker.claim(free=2)
        answer = await worker.exchange(
            finish=[
                worker.build_finish(first, Failed("x")),
                worker.build_finish(second, Snooze(4)),
            ],
            want=[Want("q", 1)],
        )
        assert answer.next_due == clock.now() + 4 * SECOND
        await worker.advance(4)
        await worker.claim_one()
        answer = await worker.exchange(want=[Want("q", 1)])
        assert answer.next_due == clock.now() + 11 * SECOND

    async def test_next_due_is_when_a_closed_gate_opens(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job(), new_job()])
        job = await worker.claim_one()
        answer = await worker.exchange(
            finish=[worker.build_finish(job, Throttled(retry_after=20))], want=[Want("q", 1)]
        )
        assert list(answer.claims) == []
        assert answer.next_due == clock.now() + 20 * SECOND

    async def test_nothing_is_due_in_an_empty_queue(self, store: Store, worker: Process) -> None:
        assert (await worker.exchange(want=[Want("q", 1)])).next_due is None
