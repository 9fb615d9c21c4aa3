"""The schedule contract: one fire per tick whoever tries, and buckets that grant what they hold."""

import asyncio

import pytest
from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND
from forge_jobs.core.status import JobStatus
from forge_jobs.store.bundle import Store
from forge_jobs.store.schedules import Bucket, Grant, Schedule
from forge_jobs.testing.clock import MovableClock

from .worker import counted, everything, new_job


def _schedule(clock: MovableClock, name: str = "report") -> Schedule:
    return Schedule(
        name=name,
        expression="0 9 * * mon-fri",
        kind="report",
        queue="mail",
        payload='{"é":1}'.encode(),
        zone="Europe/Paris",
        missed="all",
        overlap="allow",
        jitter_s=1.5,
        max_attempts=3,
        next_at=clock.now() + 60 * SECOND,
    )


@pytest.mark.asyncio
class TestSchedules:
    """Stored schedules and their ticks."""

    async def test_a_schedule_comes_back_whole(self, store: Store, clock: MovableClock) -> None:
        schedule = _schedule(clock)
        await store.schedules.put(schedule)
        stored = structs.replace(schedule, updated_at=clock.now())
        assert await store.schedules.get("report") == stored
        other = Schedule(name="a", expression="@daily", kind="x", enabled=False, error="bad")
        await store.schedules.put(other)
        names = [known.name for known in await store.schedules.all()]
        assert names == ["a", "report"]
        seen = await store.schedules.get("a")
        assert seen == structs.replace(other, updated_at=clock.now())

    async def test_ensure_keeps_what_is_there(self, store: Store, clock: MovableClock) -> None:
        first = await store.schedules.ensure(_schedule(clock))
        clock.advance(5)
        second = await store.schedules.ensure(
            structs.replace(_schedule(clock), expression="@hourly")
        )
        assert first == second == await store.schedules.get("report")

    async def test_put_replaces(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(_schedule(clock))
        await store.schedules.put(structs.replace(_schedule(clock), expression="@hourly"))
        seen = await store.schedules.get("report")
        assert seen is not None
        assert seen.expression == "@hourly"

    async def test_delete_says_whether_there_was_one(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        assert await store.schedules.delete("report")
        assert not await store.schedules.delete("report")
        assert await store.schedules.get("report") is None

    async def test_a_fire_stores_jobs_and_advances(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(structs.replace(_schedule(clock), error="old"))
        tick, after = clock.now() + 60 * SECOND, clock.now() + 120 * SECOND
        jobs = [new_job(kind="report", queue="mail"), new_job(kind="report", queue="mail")]
        answers = await store.schedules.fire("report", tick=tick, next_at=after, jobs=jobs)
        assert answers is not None
        assert [answer.status for answer in answers] == [JobStatus.PENDING] * 2
        seen = await store.schedules.get("report")
        assert seen is not None
        assert (seen.last_at, seen.next_at) == (tick, after)

    async def test_A9_a_tick_fires_exactly_once(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + 60 * SECOND
        fires = await asyncio.gather(
            *(
                store.schedules.fire(
                    "report",
                    tick=tick,
                    next_at=tick + 60 * SECOND,
                    jobs=[new_job(kind="report", queue="mail")],
                )
                for _ in range(8)
            )
        )
        assert sum(fired is not None for fired in fires) == 1
        assert await counted(store) == {("mail", JobStatus.PENDING): 1}

    async def test_other_ticks_and_names_do_not_fire(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + 60 * SECOND
        for name, at in (("report", tick - 1), ("report", tick + 1), ("none", tick)):
            fired = await store.schedules.fire(name, tick=at, next_at=None, jobs=[new_job()])
            assert fired is None
        await store.schedules.put(structs.replace(_schedule(clock), next_at=None, enabled=False))
        fired = await store.schedules.fire("report", tick=tick, next_at=None, jobs=[new_job()])
        assert fired is None
        assert await everything(store) == []

    async def test_a_fire_may_store_nothing_or_meet_a_taken_key(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + 60 * SECOND
        fire = store.schedules.fire
        assert await fire("report", tick=tick, next_at=tick + SECOND, jobs=[]) == []
        keyed = [new_job(dedupe_key="a")]
        for step in (1, 2):
            answers = await fire(
                "report", tick=tick + step * SECOND, next_at=tick + (step + 1) * SECOND, jobs=keyed
            )
            assert answers is not None
            assert [answer.duplicate for answer in answers] == [step == 2]


@pytest.mark.asyncio
class TestBuckets:
    """Token buckets."""

    async def test_a_new_bucket_is_full(self, store: Store, clock: MovableClock) -> None:
        bucket = await store.schedules.ensure_bucket("smtp", capacity=5, refill_per_s=2)
        full = Bucket(scope="smtp", capacity=5, refill_per_s=2, tokens=5, at=clock.now())
        assert bucket == full
        again = await store.schedules.ensure_bucket("smtp", capacity=99, refill_per_s=99)
        assert again == full
        assert await store.schedules.buckets() == [full]

    async def test_it_grants_exactly_what_it_holds(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.ensure_bucket("smtp", capacity=20, refill_per_s=1)
        grants = await asyncio.gather(*(store.schedules.take("smtp", 1) for _ in range(50)))
        assert sum(grant.granted for grant in grants) == 20
        refused = next(grant for grant in grants if not grant.granted)
        assert refused.retry_at == clock.now() + SECOND

    async def test_a_part_is_granted(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.ensure_bucket("smtp", capacity=3, refill_per_s=0.5)
        assert await store.schedules.take("smtp", 2) == Grant(2)
        assert await store.schedules.take("smtp", 5) == Grant(1, clock.now() + 2 * SECOND)

    async def test_a_permit_is_there_when_it_was_promised(
        self, store: Store, clock: MovableClock
    ) -> None:
        for rate in (0.1, 1 / 3, 3.0, 7.0, 1_000.0):
            scope = f"rate {rate}"
            await store.schedules.ensure_bucket(scope, capacity=2, refill_per_s=rate)
            await store.schedules.take(scope, 2)
            for _ in range(5):
                refused = await store.schedules.take(scope, 1)
                assert refused.granted == 0, scope
                assert refused.retry_at is not None, scope
                clock.advance((refused.retry_at - clock.now()) / SECOND)
                assert (await store.schedules.take(scope, 1)).granted == 1, scope

    async def test_it_never_holds_more_than_its_capacity(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.ensure_bucket("smtp", capacity=3, refill_per_s=10)
        clock.advance(3_600)
        assert (await store.schedules.take("smtp", 100)).granted == 3

    async def test_without_refill_nothing_is_promised(self, store: Store) -> None:
        await store.schedules.ensure_bucket("smtp", capacity=1, refill_per_s=0)
        assert await store.schedules.take("smtp", 1) == Grant(1)
        assert await store.schedules.take("smtp", 1) == Grant(0)

    async def test_drain_empties_it_now(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.ensure_bucket("smtp", capacity=5, refill_per_s=1)
        await store.schedules.drain("smtp")
        assert (await store.schedules.take("smtp", 1)).granted == 0
        clock.advance(2)
        assert (await store.schedules.take("smtp", 9)).granted == 2

    async def test_time_that_runs_backwards_refills_nothing(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.ensure_bucket("smtp", capacity=2, refill_per_s=1)
        await store.schedules.take("smtp", 2)
        clock.jump(-30)
        assert (await store.schedules.take("smtp", 1)).granted == 0
        clock.jump(30)
        assert (await store.schedules.take("smtp", 1)).granted == 0
        clock.advance(1)
        assert (await store.schedules.take("smtp", 5)).granted == 1

    async def test_a_change_keeps_what_is_in_it(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put_bucket("smtp", capacity=10, refill_per_s=1)
        await store.schedules.take("smtp", 4)
        wider = await store.schedules.put_bucket("smtp", capacity=100, refill_per_s=2)
        assert (wider.capacity, wider.refill_per_s, wider.tokens) == (100, 2, 6)
        narrower = await store.schedules.put_bucket("smtp", capacity=3, refill_per_s=2)
        assert narrower.tokens == 3
        assert (await store.schedules.take("smtp", 9)).granted == 3

    async def test_buckets_are_listed_as_of_now(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.ensure_bucket("b", capacity=5, refill_per_s=1)
        await store.schedules.ensure_bucket("a", capacity=5, refill_per_s=1)
        await store.schedules.drain("b")
        clock.advance(2)
        seen = [(bucket.scope, bucket.tokens) for bucket in await store.schedules.buckets()]
        assert seen == [("a", 5), ("b", pytest.approx(2))]

    async def test_A5_an_unknown_scope_is_an_error(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.schedules.take("none", 1)
        with pytest.raises(NotFound):
            await store.schedules.drain("none")
