"""Limits: caps and rates of queues and tasks, and caps per limit key."""

import pytest

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.limits import Declared, key_bucket, rate_of
from forge_jobs.core.outcome import Dead, Failed, Snooze, Throttled
from forge_jobs.core.retry import Backoff
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want
from forge_jobs.store.limits import LimitChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, claim_of, enqueue, job_counts, new_job, record

_HOSTS = Declared(name="task:fetch", concurrency=1, per="args.host")


def rated(name: str, text: str, **more: int) -> Declared:
    """A declaration of a rate alone."""
    per_s, burst = rate_of(text)
    return Declared(name=name, rate_per_s=per_s, burst=more.get("burst", burst))


def fetch(host: str, **options: object) -> dict[str, object]:
    """A job of the task whose hosts are limited."""
    return {"kind": "fetch", "limit_key": key_bucket("fetch", host), **options}


def keys(jobs: list[ClaimedJob]) -> list[int]:
    return [job.key for job in jobs]


@pytest.mark.asyncio
class TestLimitNumbers:
    """Numbers set by code and by operators, and which take precedence."""

    async def test_code_may_declare_a_limit_again(self, store: Store) -> None:
        await store.limits.publish([Declared(name="queue:q", concurrency=3)])
        await store.limits.publish([rated("queue:q", "60/m"), _HOSTS])
        queue, task = await store.limits.all()
        assert (queue.name, queue.concurrency, queue.rate_per_s) == ("queue:q", None, 1.0)
        assert (task.name, task.concurrency, task.per) == ("task:fetch", 1, "args.host")
        assert not queue.by_operator

    async def test_numbers_of_an_operator_stay(self, store: Store, worker: Process) -> None:
        await store.limits.publish([Declared(name="queue:q", concurrency=3)])
        before = (await store.processes.control(worker.key)).version
        changed = await store.limits.change("queue:q", LimitChange(concurrency=7))
        assert (changed.concurrency, changed.by_operator) == (7, True)
        assert (await store.processes.control(worker.key)).version != before
        await store.limits.publish([Declared(name="queue:q", concurrency=1)])
        [limit] = await store.limits.all()
        assert (limit.concurrency, limit.by_operator) == (7, True)
        await store.limits.reset("queue:q")
        await store.limits.publish([Declared(name="queue:q", concurrency=1)])
        [limit] = await store.limits.all()
        assert (limit.concurrency, limit.by_operator) == (1, False)

    async def test_an_operator_may_limit_what_code_does_not(self, store: Store) -> None:
        limit = await store.limits.change("task:work", LimitChange(rate_per_s=2.0))
        assert (limit.rate_per_s, limit.burst, limit.tokens) == (2.0, 2.0, 2.0)
        lifted = await store.limits.change("task:work", LimitChange(rate_per_s=None))
        assert lifted.rate_per_s is None

    async def test_publishing_the_same_again_changes_nothing(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish([_HOSTS])
        before = (await store.processes.control(worker.key)).version
        await store.limits.publish([_HOSTS])
        assert (await store.processes.control(worker.key)).version == before

    async def test_numbers_out_of_range_are_refused(self, store: Store) -> None:
        with pytest.raises(BadOption, match="concurrency"):
            await store.limits.change("queue:q", LimitChange(concurrency=-1))
        with pytest.raises(BadOption, match="rate"):
            await store.limits.change("queue:q", LimitChange(rate_per_s=0.0))
        with pytest.raises(BadOption, match="burst"):
            await store.limits.change("queue:q", LimitChange(burst=0.0))
        with pytest.raises(NotFound):
            await store.limits.reset("queue:unknown")
        assert await store.limits.all() == []


@pytest.mark.asyncio
class TestCaps:
    """Caps on running jobs of a queue or task, over all processes."""

    async def test_a_queue_runs_no_more_than_its_cap(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.limits.publish([Declared(name="queue:q", concurrency=3)])
        other = await Process.register(store, clock, host_id="host-2")
        await store.jobs.enqueue([new_job() for _ in range(8)])
        await enqueue(store, queue="elsewhere")
        mine = await worker.claim(free=2)
        theirs = await other.claim(free=5)
        assert (len(mine), len(theirs)) == (2, 1)
        assert await worker.claim(free=5) == []
        assert len(await worker.claim("elsewhere")) == 1
        answer = await worker.exchange(finish=[worker.build_finish(mine[0])], want=[Want("q", 5)])
        assert len(answer.claims) == 1

    async def test_nothing_is_prefetched_under_a_cap(self, store: Store, worker: Process) -> None:
        await store.limits.publish([Declared(name="task:work", concurrency=5)])
        await store.jobs.enqueue([new_job(track=True) for _ in range(8)])
        jobs = await worker.claim(free=2, prefetch=4)
        assert [job.started for job in jobs] == [True, True]
        assert {job.limit_key for job in jobs} == {"task:work"}

    @pytest.mark.parametrize("track", [True, False])
    async def test_a_full_task_does_not_delay_another(
        self, store: Store, worker: Process, track: bool
    ) -> None:
        await store.limits.publish([Declared(name="task:work", concurrency=2)])
        for _ in range(6):
            await enqueue(store, track=track)
        last = await enqueue(store, kind="other")
        jobs = await worker.claim(free=10)
        assert [job.kind for job in jobs] == ["work", "work", "other"]
        assert jobs[-1].key == last.key
        await worker.finish(jobs[0], Failed("no luck"))
        assert [job.kind for job in await worker.claim(free=10)] == ["work"]

    async def test_claim_order_holds_over_all_tracks(self, store: Store, worker: Process) -> None:
        await store.limits.publish([Declared(name="task:work", concurrency=10)])
        made = [
            await enqueue(store, kind=kind, priority=priority, track=kind == "work")
            for kind, priority in (("work", 1), ("other", 0), ("work", 0), ("other", 1))
        ]
        order = [made[1].key, made[2].key, made[0].key, made[3].key]
        assert keys(await worker.claim(free=10)) == order

    async def test_a_dead_worker_leaks_nothing(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.limits.publish([Declared(name="task:work", concurrency=1), _HOSTS])
        await store.jobs.enqueue([new_job(track=True), new_job(track=True)])
        await store.jobs.enqueue([new_job(**fetch("a")), new_job(**fetch("a"))])
        assert len(await worker.claim(free=10)) == 2
        clock.advance(LEASE_S + 1)
        await store.jobs.reap(crash_note="x", limit=10)
        other = await Process.register(store, clock, host_id="host-2")
        for _ in range(2):
            jobs = await other.claim(free=10)
            assert len(jobs) == 2
            await other.send_finishes(*(other.build_finish(job) for job in jobs))
        assert await job_counts(store) == {("q", JobStatus.DONE): 4}

    async def test_an_operators_cap_counts_at_once(self, store: Store, worker: Process) -> None:
        await store.jobs.enqueue([new_job() for _ in range(9)])
        assert len(await worker.claim(free=2)) == 2
        await store.limits.change("task:work", LimitChange(concurrency=3))
        assert len(await worker.claim(free=9)) == 1
        await store.limits.change("task:work", LimitChange(concurrency=0))
        assert await worker.claim(free=9) == []
        await store.limits.change("task:work", LimitChange(concurrency=None))
        assert len(await worker.claim(free=9)) == 6

    async def test_bucket_returns_how_full_a_limit_is(self, store: Store, worker: Process) -> None:
        await store.limits.publish([Declared(name="task:work", concurrency=2)])
        await store.jobs.enqueue([new_job(track=True) for _ in range(3)])
        await worker.claim(free=9)
        bucket = await store.limits.bucket("task:work")
        assert (bucket.taken, bucket.capacity) == (2, 2)
        bucket = await store.limits.bucket("queue:q")
        assert (bucket.taken, bucket.capacity) == (2, None)


@pytest.mark.asyncio
class TestRates:
    """Rates of starts of a queue or task, over all processes."""

    @pytest.mark.parametrize("name", ["queue:q", "task:work"])
    async def test_starts_follow_the_rate(
        self, store: Store, worker: Process, clock: MovableClock, name: str
    ) -> None:
        await store.limits.publish([rated(name, "2/s", burst=4)])
        other = await Process.register(store, clock, host_id="host-2")
        await store.jobs.enqueue([new_job(track=True) for _ in range(20)])
        assert len(await worker.claim(free=3)) == 3
        answer = await other.exchange(want=[Want("q", 3)])
        assert len(answer.claims) == 1
        assert answer.next_due == clock.now() + SECOND // 2
        await worker.advance(0.5)
        assert len(await worker.claim(free=9)) == 1
        await worker.advance(10)
        assert len(await worker.claim(free=9)) == 4

    async def test_an_empty_bucket_does_not_delay_another_task(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish([rated("task:work", "1/m")])
        await store.jobs.enqueue([new_job(track=True) for _ in range(5)])
        await enqueue(store, kind="other")
        assert [job.kind for job in await worker.claim(free=9)] == ["work", "other"]

    async def test_prefetch_needs_tokens_for_all(self, store: Store, worker: Process) -> None:
        await store.limits.publish([rated("queue:q", "1/s", burst=5)])
        await store.jobs.enqueue([new_job() for _ in range(9)])
        jobs = await worker.claim(free=1, prefetch=2)
        assert [job.started for job in jobs] == [True, False, False]
        jobs = await worker.claim(free=1, prefetch=2)
        assert [job.started for job in jobs] == [True]

    async def test_a_clock_that_steps_back_adds_nothing(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.limits.publish([rated("queue:q", "1/s", burst=2)])
        await store.jobs.enqueue([new_job() for _ in range(9)])
        assert len(await worker.claim(free=9)) == 2
        clock.jump(-1.0)
        assert await worker.claim(free=9) == []
        clock.advance(1.5)
        assert await worker.claim(free=9) == []
        clock.advance(0.5)
        assert len(await worker.claim(free=9)) == 1


@pytest.mark.asyncio
class TestLimitKeys:
    """Caps on running jobs of one limit key of a task."""

    async def test_a_full_key_is_held_and_delays_no_other(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish([_HOSTS])
        first = await enqueue(store, **fetch("a"))
        second = await enqueue(store, **fetch("a"))
        third = await enqueue(store, **fetch("b"))
        assert [one.status for one in (first, second, third)] == [
            JobStatus.PENDING, JobStatus.HELD, JobStatus.PENDING,
        ]  # fmt: skip
        held = await record(store, second.id)
        assert (held.status, held.limit_bucket) == (JobStatus.HELD, key_bucket("fetch", "a"))
        jobs = await worker.claim(free=9)
        assert keys(jobs) == [first.key, third.key]
        assert jobs[0].limit_key == key_bucket("fetch", "a")
        bucket = await store.limits.bucket(key_bucket("fetch", "a"))
        assert (bucket.taken, bucket.capacity) == (1, 1)

    async def test_a_lower_limit_applies_to_all_pending_jobs(
        self, store: Store, worker: Process
    ) -> None:
        """With more pending jobs than one transaction of any backend holds again."""
        await store.limits.publish([Declared(name="task:fetch", concurrency=9_999, per="args.x")])
        hosts = ["b", "a", "c", *["a"] * 5_600, "b", "b", "c"]
        answers = await store.jobs.enqueue([new_job(**fetch(host)) for host in hosts])
        while (await store.limits.admit(limit=9)).admitted:
            pass
        assert await job_counts(store) == {("q", JobStatus.PENDING): len(hosts)}
        running = keys(await worker.claim(free=1))
        await store.limits.change("task:fetch", LimitChange(concurrency=2))
        assert await job_counts(store) == {
            ("q", JobStatus.RUNNING): 1,
            ("q", JobStatus.PENDING): 5,
            ("q", JobStatus.HELD): len(hosts) - 6,
        }
        first = [answers[index].key for index in (1, 2, 3, 5_603, 5_605)]
        assert keys(await worker.claim(free=9)) == first
        assert running == [answers[0].key]

    async def test_within_one_call(self, store: Store, worker: Process) -> None:
        await store.limits.publish([Declared(name="task:fetch", concurrency=2, per="args.host")])
        answers = await store.jobs.enqueue([new_job(**fetch("a")) for _ in range(5)])
        states = [answer.status for answer in answers]
        assert states == [JobStatus.PENDING] * 2 + [JobStatus.HELD] * 3
        assert await job_counts(store) == {("q", JobStatus.PENDING): 2, ("q", JobStatus.HELD): 3}
        assert keys(await worker.claim(free=9)) == [answer.key for answer in answers[:2]]

    @pytest.mark.parametrize(
        "ended_by",
        ["done", "failed", "dead", "snooze", "throttle", "cancelled", "deleted", "expired"],
    )
    async def test_every_end_of_a_job_admits_the_next_one(
        self, store: Store, worker: Process, clock: MovableClock, ended_by: str
    ) -> None:
        await store.limits.publish([_HOSTS])
        expires_s = 5.0 if ended_by == "expired" else None
        first = await enqueue(store, **fetch("a", expires_s=expires_s))
        second = await enqueue(store, **fetch("a"))
        chosen = Selection(ids=(first.id,))
        match ended_by:
            case "cancelled":
                await store.jobs.act(BulkAction.CANCEL, chosen, reason="x", limit=1)
            case "deleted":
                await store.jobs.act(BulkAction.DELETE, chosen, limit=1)
            case "expired":
                clock.advance(6)
                await store.jobs.promote(limit=10)
            case _:
                outcome = {
                    "done": None,
                    "failed": Failed("no luck"),
                    "dead": Dead("hopeless"),
                    "snooze": Snooze(30),
                    "throttle": Throttled(retry_after=0.001),
                }[ended_by]
                job = await worker.claim_one()
                await worker.send_finishes(worker.build_finish(job, outcome))
        assert (await record(store, second.id)).status is JobStatus.PENDING
        clock.advance(0.01)
        assert keys(await worker.claim(free=9)) == [second.key]

    async def test_finishing_exchange_claims_the_next(self, store: Store, worker: Process) -> None:
        await store.limits.publish([_HOSTS])
        answers = await store.jobs.enqueue([new_job(**fetch("a")) for _ in range(3)])
        job = await worker.claim_one()
        answer = await worker.exchange(finish=[worker.build_finish(job)], want=[Want("q", 5)])
        assert keys(list(answer.claims)) == [answers[1].key]

    async def test_a_released_job_keeps_its_room(self, store: Store, worker: Process) -> None:
        await store.limits.publish([_HOSTS])
        first = await enqueue(store, **fetch("a"))
        second = await enqueue(store, **fetch("a"))
        job = await worker.claim_one()
        await worker.exchange(release=[claim_of(job)])
        assert (await record(store, second.id)).status is JobStatus.HELD
        assert keys(await worker.claim(free=9)) == [first.key]

    async def test_a_limit_key_admits_by_priority(self, store: Store, worker: Process) -> None:
        await store.limits.publish([_HOSTS])
        for priority in (0, 5, -5, 0):
            await enqueue(store, **fetch("a", priority=priority))
        seen: list[int] = []
        for _ in range(4):
            job = await worker.claim_one()
            seen.append(job.priority)
            await worker.finish(job, outcome=Dead("x"))
        assert seen == [0, -5, 0, 5]

    async def test_a_job_that_becomes_due_waits_for_room(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.limits.publish([_HOSTS])
        later = await enqueue(store, **fetch("a", delay_s=5.0))
        assert later.status is JobStatus.SCHEDULED
        first = await enqueue(store, **fetch("a"))
        job = await worker.claim_one()
        assert job.key == first.key
        await worker.advance(6)
        assert await worker.claim(free=9) == []
        assert (await record(store, later.id)).status is JobStatus.HELD
        await worker.finish(job, Failed("again"), backoff=Backoff(base_s=1.0))
        assert keys(await worker.claim(free=9)) == [later.key]
        await worker.advance(2)
        assert await worker.claim(free=9) == []
        failed = await record(store, first.id)
        assert (failed.status, failed.limit_bucket) == (JobStatus.HELD, key_bucket("fetch", "a"))

    async def test_a_retried_job_waits_for_its_full_key(
        self, store: Store, worker: Process
    ) -> None:
        await store.limits.publish([_HOSTS])
        dead = await enqueue(store, **fetch("a"))
        await worker.finish(await worker.claim_one(), Dead("x"))
        await enqueue(store, **fetch("a"))
        scheduled = await enqueue(store, **fetch("a", delay_s=60.0))
        acted = await store.jobs.act(BulkAction.RETRY, Selection(ids=(dead.id,)), limit=1)
        assert acted.changed == 1
        acted = await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(scheduled.id,)), limit=1)
        assert acted.changed == 1
        for job_id in (dead.id, scheduled.id):
            assert (await record(store, job_id)).status is JobStatus.HELD
        assert len(await worker.claim(free=9)) == 1

    async def test_an_operator_raises_and_lowers_a_key(self, store: Store, worker: Process) -> None:
        await store.limits.publish([_HOSTS])
        await store.jobs.enqueue([new_job(**fetch("a")) for _ in range(6)])
        await store.limits.change("task:fetch", LimitChange(concurrency=4))
        assert await job_counts(store) == {("q", JobStatus.PENDING): 4, ("q", JobStatus.HELD): 2}
        await worker.claim(free=1)
        await store.limits.change("task:fetch", LimitChange(concurrency=2))
        assert len(await worker.claim(free=9)) == 1
        await store.limits.change("task:fetch", LimitChange(concurrency=None))
        assert len(await worker.claim(free=9)) == 4

    async def test_a_key_without_a_limit_holds_no_job(self, store: Store, worker: Process) -> None:
        await store.jobs.enqueue([new_job(**fetch("a")) for _ in range(3)])
        assert len(await worker.claim(free=9)) == 3

    async def test_admit_repairs_forgotten_buckets(self, store: Store, worker: Process) -> None:
        await store.limits.publish([_HOSTS])
        for host in ("a", "b", "c"):
            await enqueue(store, **fetch(host, hold=True))
            await enqueue(store, **fetch(host, hold=True))
        assert await worker.claim(free=9) == []
        step = await store.limits.admit(limit=2)
        assert (step.admitted, step.next is not None) == (2, True)
        step = await store.limits.admit(limit=2, after=step.next)
        assert (step.admitted, step.next) == (1, None)
        assert len(await worker.claim(free=9)) == 3
        assert (await store.limits.admit(limit=100)).admitted == 0
