"""The metrics contract: claims and their ends, times, totals, and samples of processes."""

import pytest

from forge_jobs.core.counters import Minute
from forge_jobs.core.histogram import EMPTY, histogram, merged
from forge_jobs.core.instant import MINUTE
from forge_jobs.core.job import Claim
from forge_jobs.core.outcome import Dead, Done, Failed, Missing, Snooze, Throttled
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.core.vitals import LIFETIME, Vitals
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, claim_of, enqueue, job_counts, new_job


async def _roll_up_all(store: Store, limit: int = 1_000) -> None:
    for _ in range(1_000):
        if not await store.metrics.roll_up(limit=limit):
            return
    raise AssertionError("roll_up does not end")


async def _only(store: Store) -> Minute:
    [total] = await store.metrics.totals()
    return total


@pytest.mark.asyncio
class TestFlow:
    """Every claim is counted once when it is made and once when it ends."""

    async def test_in_flight_is_what_started_and_did_not_end(
        self, store: Store, worker: Process
    ) -> None:
        await store.jobs.enqueue([new_job() for _ in range(9)])
        jobs = await worker.claim(free=8)
        outcomes = (
            Done(), Failed("x"), Dead("x"), Throttled(1.0), Snooze(1.0), Missing(),
        )  # fmt: skip
        finishes = [
            worker.build_finish(job, finish) for job, finish in zip(jobs, outcomes, strict=False)
        ]
        await worker.exchange(finish=finishes, release=[claim_of(jobs[6])])
        for _ in range(2):
            seen = await _only(store)
            assert (seen.enqueued, seen.started, seen.done, seen.retried) == (9, 8, 1, 1)
            assert (seen.dead, seen.throttled, seen.released, seen.cancelled) == (1, 1, 3, 0)
            ended = seen.done + seen.retried + seen.dead + seen.throttled + seen.released
            running = (await job_counts(store))["q", JobStatus.RUNNING]
            assert seen.started - ended == running == 1
            await _roll_up_all(store)

    async def test_a_lost_run_is_retried_and_a_lost_prefetch_released(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(), new_job(), new_job(max_attempts=1)])
        await worker.claim(free=1, prefetch=1)
        await worker.claim(free=1)
        clock.advance(LEASE_S)
        await store.jobs.reap(crash_note="x", limit=10)
        seen = await _only(store)
        assert (seen.started, seen.retried, seen.released, seen.dead) == (3, 1, 1, 1)
        assert seen.ran == EMPTY

    async def test_a_cancelled_run_counts_as_cancelled(self, store: Store, worker: Process) -> None:
        waiting, running = await store.jobs.enqueue([new_job(priority=9), new_job()])
        job = await worker.claim_one()
        ids = (waiting.id, running.id)
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=ids), reason="x", limit=2)
        await worker.finish(job, Failed("x"), ran_s=1.0)
        seen = await _only(store)
        assert (seen.started, seen.cancelled, seen.retried) == (1, 2, 0)
        assert seen.ran == histogram([1.0])


@pytest.mark.asyncio
class TestTimes:
    """How long jobs waited, ran, and took from enqueue to end."""

    async def test_each_finish_is_a_sample(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job() for _ in range(4)])
        jobs = await worker.claim(free=4)
        clock.advance(2)
        await worker.send_finishes(
            worker.build_finish(jobs[0], waited_s=0.25, ran_s=0.5),
            worker.build_finish(jobs[1], Failed("x"), waited_s=0.25, ran_s=4.0),
            worker.build_finish(jobs[2], Throttled(1.0), waited_s=0.5, ran_s=0.5),
            worker.build_finish(jobs[3], Missing()),
        )
        for _ in range(2):
            seen = await _only(store)
            assert seen.waited == histogram([0.25, 0.25, 0.5])
            assert seen.ran == histogram([0.5, 4.0, 0.5])
            assert seen.took == histogram([2.0])
            await _roll_up_all(store)

    async def test_the_store_measures_from_enqueue_to_end(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        plain = await enqueue(store)
        keyed = await enqueue(store, dedupe_key="a")
        jobs = await worker.claim(free=2)
        clock.advance(3)
        await worker.send_finishes(*(worker.build_finish(job) for job in jobs))
        records = [await store.jobs.get(answer.id) for answer in (plain, keyed)]
        spans = [
            (record.finished_at - record.enqueued_at) / 1_000_000
            for record in records
            if record is not None and record.finished_at is not None
        ]
        assert (await _only(store)).took == histogram(spans) == histogram([3.0, 3.0])

    async def test_a_stale_or_repeated_finish_is_no_sample(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(), new_job(), new_job()])
        first, second, third = await worker.claim(free=3)
        finish = worker.build_finish(first, ran_s=1.0)
        await worker.send_finishes(finish, finish)
        await worker.send_finishes(finish, worker.build_finish(third, ran_s=2.0))
        clock.advance(LEASE_S)
        await store.jobs.reap(crash_note="x", limit=10)
        await worker.send_finishes(worker.build_finish(second, ran_s=1.0))
        seen = await _only(store)
        assert seen.ran == histogram([1.0, 2.0])
        assert seen.took.count == 2

    async def test_untimed_exchanges_are_counted_without_their_times(
        self, store: Store, worker: Process
    ) -> None:
        await store.jobs.enqueue([new_job(), new_job()])
        first, second = await worker.claim(free=2)
        finishes = [
            worker.build_finish(first, ran_s=1.0),
            worker.build_finish(second, Dead("x"), ran_s=1.0),
        ]
        await worker.exchange(finish=finishes, timed=False)
        seen = await _only(store)
        assert (seen.started, seen.done, seen.dead) == (2, 1, 1)
        assert seen.waited == seen.ran == seen.took == EMPTY

    async def test_many_small_writes_make_the_same_minute_as_one(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        spans = [0.000_003, 0.000_3, 0.003, 0.03, 0.3, 3.0, 30.0, 3_000_000.0] * 3
        await store.jobs.enqueue([new_job() for _ in spans])
        jobs = await worker.claim(free=len(spans))
        for job, span in zip(jobs, spans, strict=True):
            await worker.send_finishes(worker.build_finish(job, waited_s=span, ran_s=span))
            await store.metrics.roll_up(limit=3)
        since = clock.now() - clock.now() % MINUTE
        [seen] = await store.metrics.minutes(since=since, until=since + MINUTE)
        assert seen.ran.buckets == seen.waited.buckets == histogram(spans).buckets
        assert seen.ran.sum_s == pytest.approx(sum(spans))


@pytest.mark.asyncio
class TestTotals:
    """Sums over all time, which never decrease."""

    async def test_totals_outlive_minutes_and_jobs(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        assert await store.metrics.totals() == []
        for _ in range(3):
            answer = await enqueue(store)
            await worker.finish(await worker.claim_one(), Done(), ran_s=0.5)
            await store.jobs.act(BulkAction.DELETE, Selection(ids=(answer.id,)), limit=1)
            await worker.advance(60)
        await enqueue(store, queue="other", kind="b")
        await _roll_up_all(store)
        before = clock.now() + MINUTE
        await store.metrics.purge_minutes(before=before, limit=100)
        assert await store.metrics.minutes(since=0, until=before) == []
        other, own = await store.metrics.totals()
        assert other == Minute(at=0, queue="other", kind="b", enqueued=1)
        assert (own.at, own.enqueued, own.started, own.done) == (0, 3, 3, 3)
        assert own.ran == histogram([0.5] * 3)

    async def test_totals_are_the_sum_of_all_minutes(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        since = clock.now() - clock.now() % MINUTE
        for turn in range(4):
            await store.jobs.enqueue([new_job() for _ in range(turn + 1)])
            for job in await worker.claim(free=9):
                await worker.finish(job, Done(), ran_s=0.5 * turn)
            await store.metrics.roll_up(limit=2)
            await worker.advance(60)
        minutes = await store.metrics.minutes(since=since, until=clock.now() + MINUTE)
        seen = await _only(store)
        assert seen.done == sum(minute.done for minute in minutes) == 10
        assert seen.ran == merged(minute.ran for minute in minutes)

    async def test_a_release_of_nothing_is_not_counted(self, store: Store, worker: Process) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(release=[Claim(job.key, job.epoch + 1)])
        assert (await _only(store)).released == 0


@pytest.mark.asyncio
class TestVitals:
    """Samples of processes."""

    async def test_reports_about_one_minute_are_added_up(
        self, store: Store, clock: MovableClock
    ) -> None:
        at = clock.now() - clock.now() % MINUTE
        sample = Vitals(
            at=at,
            host_id="b",
            label="b-1",
            cpu_s=1.5,
            span_s=10.0,
            memory_bytes=100,
            disk_read_bytes=5,
            disk_write_bytes=7,
            disk_share=0.5,
            running=3,
            exchange=histogram([0.001, 0.002]),
            errors=1,
        )
        await store.metrics.record_vitals(sample)
        assert await store.metrics.vitals(since=at, until=at + MINUTE) == [sample]
        again = Vitals(at=at, host_id="b", cpu_s=0.5, span_s=10.0, memory_bytes=90)
        await store.metrics.record_vitals(again)
        await store.metrics.record_vitals(Vitals(at=at, host_id="a", cpu_s=1.0, span_s=4.0))
        await store.metrics.record_vitals(Vitals(at=at + MINUTE, host_id="a"))
        first, second = await store.metrics.vitals(since=at, until=at + MINUTE)
        assert (first.host_id, first.cores) == ("a", 0.25)
        assert (second.cpu_s, second.span_s, second.memory_bytes) == (2.0, 20.0, 100)
        assert second.exchange == histogram([0.001, 0.002])
        assert (second.disk_read_bytes, second.disk_write_bytes, second.errors) == (5, 7, 1)

    async def test_A11_old_reports_of_every_host_are_forgotten(
        self, store: Store, clock: MovableClock
    ) -> None:
        at = clock.now() - clock.now() % MINUTE
        for turn in range(3):
            for host_id in ("a", "b"):
                await store.metrics.record_vitals(Vitals(at=at + turn * MINUTE, host_id=host_id))
        before = at + 2 * MINUTE
        removed = [await store.metrics.purge_minutes(before=before, limit=3) for _ in range(3)]
        assert removed == [3, 1, 0]
        left = await store.metrics.vitals(since=at, until=at + 9 * MINUTE)
        assert [(row.at, row.host_id) for row in left] == [(before, "a"), (before, "b")]

    async def test_round_trips_are_counted_for_ever(
        self, store: Store, clock: MovableClock
    ) -> None:
        """Even after minutes are purged: a histogram of Prometheus must not decrease."""
        assert await store.metrics.vitals(since=LIFETIME, until=LIFETIME + 1) == []
        at = clock.now() - clock.now() % MINUTE
        for turn, host_id in enumerate(("a", "b", "a")):
            round_trips = histogram([0.001 * (turn + 1)])
            sample = Vitals(
                at=at + turn * MINUTE, host_id=host_id, exchange=round_trips, errors=turn
            )
            await store.metrics.record_vitals(sample)
        await store.metrics.purge_minutes(before=at + 9 * MINUTE, limit=99)
        assert await store.metrics.vitals(since=0, until=at + 9 * MINUTE) == []
        [known] = await store.metrics.vitals(since=LIFETIME, until=LIFETIME + 1)
        assert known.exchange.buckets == histogram([0.001, 0.002, 0.003]).buckets
        assert (known.exchange.count, known.errors) == (3, 3)
