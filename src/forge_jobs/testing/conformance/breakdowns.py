"""The contract for numbers by kind and by tag."""

import pytest

from forge_jobs.core.counters import KindCount, Minute
from forge_jobs.core.histogram import histogram
from forge_jobs.core.instant import DAY, FIVE_MINUTES, HOUR, MINUTE
from forge_jobs.core.outcome import Dead, Done, Failed, Missing
from forge_jobs.core.status import JobStatus
from forge_jobs.core.tag_counts import MAX_VALUES, OTHER, TagDay, TagSums, TaskSums
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, enqueue, new_job


async def _roll_up_all(store: Store) -> None:
    for _ in range(1_000):
        if not await store.metrics.roll_up(limit=1_000):
            return


async def _days(store: Store, clock: MovableClock, tag: str | None = None) -> list[TagDay]:
    return await store.breakdowns.tag_days(
        since=clock.now() - DAY, until=clock.now() + MINUTE, tag=tag
    )


@pytest.mark.asyncio
class TestKindCounts:
    """``counts``."""

    async def test_jobs_by_kind_follow_every_transition(
        self, store: Store, worker: Process
    ) -> None:
        assert await store.breakdowns.counts() == []
        await store.jobs.enqueue([new_job(kind="a"), new_job(kind="a"), new_job(kind="b")])
        await worker.finish(await worker.claim_one(), Done())
        expected = [
            KindCount("q", "a", JobStatus.DONE, 1),
            KindCount("q", "a", JobStatus.PENDING, 1),
            KindCount("q", "b", JobStatus.PENDING, 1),
        ]
        for _ in range(2):
            counts = await store.breakdowns.counts()
            assert sorted(counts, key=lambda one: (one.kind, one.status)) == expected
            await _roll_up_all(store)


@pytest.mark.asyncio
class TestPeriods:
    """``periods`` and their purge."""

    async def test_hours_and_days_are_the_sums_of_their_minutes(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await worker.advance((-clock.now() % DAY) / 1_000_000)
        start = clock.now()
        for _ in range(3):
            await enqueue(store, kind="a")
            job = await worker.claim_one()
            await worker.send_finishes(worker.build_finish(job, waited_s=1.0, ran_s=0.5))
            await _roll_up_all(store)
            await worker.advance(1_200)
        await enqueue(store, kind="b", queue="other")
        hour = Minute(
            at=start,
            queue="q",
            kind="a",
            enqueued=3,
            started=3,
            done=3,
            waited=histogram([1.0] * 3),
            ran=histogram([0.5] * 3),
            took=histogram([0.0] * 3),
        )
        other = Minute(at=start + HOUR, queue="other", kind="b", enqueued=1)
        periods, until = store.breakdowns.periods, clock.now() + MINUTE
        for _ in range(2):
            assert await periods(HOUR, since=start, until=until) == [hour, other]
            assert await periods(HOUR, since=start, until=start + HOUR) == [hour]
            assert await periods(HOUR, since=start, until=until, kind="b") == [other]
            assert await periods(HOUR, since=start, until=until, queue="q") == [hour]
            days = await periods(DAY, since=start, until=until)
            assert [(day.at, day.kind, day.done) for day in days] == [
                (start, "b", 0),
                (start, "a", 3),
            ]
            short = await periods(FIVE_MINUTES, since=start, until=until, queue="other")
            assert [(one.at, one.enqueued) for one in short] == [(start + HOUR, 1)]
            minutes = await periods(MINUTE, since=start, until=until, kind="a")
            assert [minute.at - start for minute in minutes] == [0, 20 * MINUTE, 40 * MINUTE]
            await _roll_up_all(store)

    async def test_only_the_newest_are_read(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        for _ in range(3):
            await enqueue(store)
            await worker.advance(3_600)
        await _roll_up_all(store)
        found = await store.breakdowns.periods(
            HOUR, since=clock.now() - DAY, until=clock.now(), limit=2
        )
        hour = clock.now() - clock.now() % HOUR
        assert [one.at for one in found] == [hour - 2 * HOUR, hour - HOUR]

    async def test_old_ones_are_forgotten(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await enqueue(store, tags=("a",))
        await worker.finish(await worker.claim_one(), Done())
        await _roll_up_all(store)
        start = clock.now()
        clock.advance(2 * 86_400)
        await store.metrics.purge_minutes(before=clock.now(), limit=10)
        since = start - DAY
        short = await store.breakdowns.periods(FIVE_MINUTES, since=since, until=clock.now())
        assert short == []
        assert await store.breakdowns.periods(HOUR, since=since, until=clock.now()) == []
        assert await store.breakdowns.periods(DAY, since=since, until=clock.now()) == []
        assert await store.breakdowns.tag_days(since=since, until=clock.now()) == []


@pytest.mark.asyncio
class TestTagDays:
    """``tag_days``: counted by the statements that finish jobs."""

    async def test_runs_are_counted_for_each_tag(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        day = clock.now() - clock.now() % DAY
        hour = (clock.now() - day) // HOUR
        await store.jobs.enqueue([
            new_job(kind="a", tags=("tenant:x", "eu")),
            new_job(kind="a", tags=("tenant:x",)),
            new_job(kind="b", tags=("tenant:x",)),
            new_job(kind="b", tags=("tenant:x",)),
            new_job(kind="b"),
        ])  # fmt: skip
        jobs = await worker.claim(free=5)
        outcomes = (Done(), Failed("x"), Dead("x"), Missing(), Done())
        await worker.send_finishes(*(
            worker.build_finish(job, outcome, ran_s=2.0, waited_s=1.0)
            for job, outcome in zip(jobs, outcomes, strict=True)
        ))  # fmt: skip
        once = TagSums(runs=1, done=1, ran_s=2.0, waited_s=1.0)
        for _ in range(2):
            eu, tenant = await _days(store, clock)
            assert (eu.day, eu.tag, eu.total, eu.hours) == (day, "eu", once, {hour: once})
            assert tenant.tag == "tenant:x"
            assert tenant.total == TagSums(
                runs=3, done=1, retried=1, dead=1, ran_s=6.0, waited_s=3.0
            )
            [whole] = await _days(store, clock, "tenant:x")
            assert (whole.total, whole.hours) == (tenant.total, tenant.hours)
            assert set(whole.tasks) == {
                TaskSums("q", "a", TagSums(2, 1, 1, 0, 4.0, 2.0)),
                TaskSums("q", "b", TagSums(1, 0, 0, 1, 2.0, 1.0)),
            }
            assert [one.total for one in await _days(store, clock, "eu")] == [eu.total]
            assert await _days(store, clock, "unknown") == []
            await _roll_up_all(store)

    async def test_a_stale_finish_is_not_counted(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await store.jobs.enqueue([new_job(tags=("a",)), new_job(tags=("a",))])
        first, second = await worker.claim(free=2)
        finish = worker.build_finish(first, ran_s=1.0)
        await worker.send_finishes(finish)
        # A batch in which one finish does not apply is counted from what applied.
        await worker.send_finishes(finish, worker.build_finish(second, ran_s=1.0))
        [day] = await _days(store, clock)
        assert (day.total.runs, day.total.ran_s) == (2, 2.0)

    async def test_at_most_500_values_a_day_and_a_noisy_one_is_among_them(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        for start in range(0, MAX_VALUES + 100, 100):
            await self._run_each(store, worker, [f"t{start + one}" for one in range(100)], 0.001)
            await _roll_up_all(store)
        await self._run_each(store, worker, ["noisy"], 60.0)
        for _ in range(2):
            days = await _days(store, clock)
            named = {day.tag: day for day in days if day.tag != OTHER}
            assert len(named) == MAX_VALUES
            assert named["noisy"].total.ran_s == 60.0
            assert sum(day.total.runs for day in days) == MAX_VALUES + 101
            await _roll_up_all(store)

    async def _run_each(self, store: Store, worker: Process, tags: list[str], ran_s: float) -> None:
        await store.jobs.enqueue([new_job(tags=(tag,)) for tag in tags])
        jobs = await worker.claim(free=len(tags))
        await worker.send_finishes(*(worker.build_finish(job, ran_s=ran_s) for job in jobs))
