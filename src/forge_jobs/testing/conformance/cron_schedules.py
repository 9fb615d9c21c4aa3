"""The cron half of the schedule contract: one fire per tick whoever tries, and what is kept."""

import asyncio

import pytest
from msgspec import structs

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.status import JobStatus
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.schedules import FIRES_KEPT, Fire, FireOutcome, NewFire, Schedule
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import counted, everything, new_job

MINUTE = 60 * SECOND


def _schedule(clock: MovableClock, name: str = "report") -> Schedule:
    return Schedule(
        name=name,
        expression="0 9 * * mon-fri",
        kind="report",
        queue="mail",
        payload='{"é":1}'.encode(),
        zone="Europe/Paris",
        missed="all",
        missed_limit=7,
        overlap="allow",
        jitter_s=1.5,
        max_attempts=3,
        template=b'{"priority":2}',
        declared=True,
        next_at=clock.now() + MINUTE,
    )


def _shot(tick: Instant, **options: object) -> NewFire:
    return NewFire(tick, new_job(kind="report", queue="mail", **options))


async def _seen(store: Store, name: str = "report") -> Schedule:
    found = await store.schedules.get(name)
    assert found is not None
    return found


@pytest.mark.asyncio
class TestTimetable:
    """Stored schedules."""

    async def test_a_schedule_comes_back_whole(self, store: Store, clock: MovableClock) -> None:
        schedule = _schedule(clock)
        assert await store.schedules.put(schedule)
        assert await _seen(store) == structs.replace(schedule, version=1, updated_at=clock.now())
        other = Schedule(
            name="a", expression="@daily", kind="x", enabled=False, edited=True, error="bad"
        )
        await store.schedules.put(other)
        names = [known.name for known in await store.schedules.all()]
        assert names == ["a", "report"]
        seen = await _seen(store, "a")
        assert seen == structs.replace(other, version=1, updated_at=clock.now())

    async def test_put_replaces(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(_schedule(clock))
        await store.schedules.put(structs.replace(_schedule(clock), expression="@hourly"))
        seen = await _seen(store)
        assert (seen.expression, seen.version) == ("@hourly", 2)

    async def test_put_may_expect_a_version(self, store: Store, clock: MovableClock) -> None:
        schedule, put = _schedule(clock), store.schedules.put
        assert not await put(schedule, expect=1), "there is none yet"
        assert await put(schedule, expect=0)
        assert not await put(structs.replace(schedule, expression="@daily"), expect=0)
        assert await put(structs.replace(schedule, expression="@hourly"), expect=1)
        assert not await put(structs.replace(schedule, expression="@daily"), expect=1)
        seen = await _seen(store)
        assert (seen.expression, seen.version) == ("@hourly", 2)

    async def test_an_edit_that_saw_an_older_tick_does_not_bring_it_back(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        seen = await _seen(store)
        tick = clock.now() + MINUTE
        fired = await store.schedules.fire(
            "report", tick=tick, next_at=tick + MINUTE, new_fires=[_shot(tick)]
        )
        assert fired is not None
        edited = structs.replace(seen, payload=b"[]")
        assert not await store.schedules.put(edited, expect=seen.version)
        assert (await _seen(store)).next_at == tick + MINUTE

    async def test_of_two_that_expect_the_same_one_succeeds(
        self, store: Store, clock: MovableClock
    ) -> None:
        for expect in (0, 1):
            done = await asyncio.gather(
                *(store.schedules.put(_schedule(clock), expect=expect) for _ in range(6))
            )
            assert sum(done) == 1

    async def test_delete_says_whether_there_was_one(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        await store.schedules.trigger("report", new_job())
        assert await store.schedules.delete("report")
        assert not await store.schedules.delete("report")
        assert await store.schedules.get("report") is None
        assert await store.schedules.history("report") == []

    async def test_changes_raise_the_control_version_and_fires_do_not(
        self, store: Store, clock: MovableClock
    ) -> None:
        me = await store.processes.register(
            NewProcess(host_id="a", label="a", queues=("mail",), pid=1, hostname="h", lease_s=600)
        )

        async def version() -> int:
            return (await store.processes.control(me)).version

        before = await version()
        await store.schedules.put(_schedule(clock))
        stored = await version()
        assert stored > before
        tick = clock.now() + MINUTE
        await store.schedules.fire("report", tick=tick, next_at=None, new_fires=[_shot(tick)])
        assert not await store.schedules.put(_schedule(clock), expect=77)
        assert not await store.schedules.delete("none")
        assert await version() == stored
        await store.schedules.delete("report")
        assert await version() > stored


@pytest.mark.asyncio
class TestTicks:
    """Ticks that come, and fire once."""

    async def test_what_is_due_comes_in_order(self, store: Store, clock: MovableClock) -> None:
        now = clock.now()
        ticks = {"later": 30, "b": 10, "a": 10, "new": None, "off": 5}
        for name, after_s in ticks.items():
            next_at = None if after_s is None else now + after_s * SECOND
            await store.schedules.put(
                structs.replace(_schedule(clock, name), next_at=next_at, enabled=name != "off")
            )
        due = await store.schedules.due(limit=10)
        assert [one.name for one in due.schedules] == ["new"]
        assert (due.now, due.next_at) == (now, now + 10 * SECOND)
        clock.advance(10)
        due = await store.schedules.due(limit=10)
        assert [one.name for one in due.schedules] == ["new", "a", "b"]
        assert due.next_at == now + 30 * SECOND
        assert len((await store.schedules.due(limit=2)).schedules) == 2
        clock.advance(60)
        due = await store.schedules.due(limit=10)
        assert [one.name for one in due.schedules] == ["new", "a", "b", "later"]
        assert due.next_at is None

    async def test_a_fire_stores_jobs_and_advances(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(structs.replace(_schedule(clock), error="old"))
        tick = clock.now() + MINUTE
        clock.advance(90)
        new_fires = [_shot(tick), _shot(tick + 30 * SECOND)]
        fires = await store.schedules.fire(
            "report", tick=tick, next_at=tick + 60 * SECOND, new_fires=new_fires
        )
        assert fires is not None
        assert [(fire.tick, fire.at, fire.outcome) for fire in fires] == [
            (tick, clock.now(), FireOutcome.FIRED),
            (tick + 30 * SECOND, clock.now(), FireOutcome.FIRED),
        ]
        for fire in fires:
            assert fire.job_id is not None
            job = await store.jobs.get(fire.job_id)
            assert job is not None
            assert (job.status, job.queue) == (JobStatus.PENDING, "mail")
        seen = await _seen(store)
        assert (seen.last_at, seen.next_at) == (tick + 30 * SECOND, tick + 60 * SECOND)
        assert (seen.error, seen.version, seen.updated_at) == (None, 2, clock.now())

    async def test_A9_a_tick_fires_exactly_once(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + MINUTE
        fires = await asyncio.gather(
            *(
                store.schedules.fire(
                    "report", tick=tick, next_at=tick + MINUTE, new_fires=[_shot(tick)]
                )
                for _ in range(8)
            )
        )
        assert sum(fired is not None for fired in fires) == 1
        assert await counted(store) == {("mail", JobStatus.PENDING): 1}
        assert len(await store.schedules.history("report")) == 1

    async def test_other_ticks_and_names_do_not_fire(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + MINUTE
        fire = store.schedules.fire
        for name, at in (("report", tick - 1), ("report", tick + 1), ("none", tick)):
            assert await fire(name, tick=at, next_at=None, new_fires=[_shot(at)]) is None
        await store.schedules.put(structs.replace(_schedule(clock), enabled=False))
        assert await fire("report", tick=tick, next_at=None, new_fires=[_shot(tick)]) is None
        await store.schedules.put(structs.replace(_schedule(clock), next_at=None))
        assert await fire("report", tick=tick, next_at=None, new_fires=[_shot(tick)]) is None
        assert await everything(store) == []
        assert await store.schedules.history("report") == []

    async def test_ticks_may_be_let_go(self, store: Store, clock: MovableClock) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + MINUTE
        fires = await store.schedules.fire(
            "report", tick=tick, next_at=tick + MINUTE, new_fires=[NewFire(tick, None, 4)]
        )
        assert fires == [Fire(tick, clock.now(), FireOutcome.MISSED, None, 4)]
        seen = await _seen(store)
        assert (seen.last_at, seen.next_at) == (None, tick + MINUTE), "nothing was fired"
        assert await everything(store) == []

    async def test_L6_a_taken_key_is_a_skipped_tick(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(_schedule(clock))
        tick = clock.now() + MINUTE
        fire, ids = store.schedules.fire, set[str | None]()
        for step, wanted in enumerate((FireOutcome.FIRED, FireOutcome.SKIPPED)):
            at = tick + step * MINUTE
            new_fires = [_shot(at, dedupe_key="cron:report")]
            fires = await fire("report", tick=at, next_at=at + MINUTE, new_fires=new_fires)
            assert fires is not None
            assert [one.outcome for one in fires] == [wanted]
            ids.add(fires[0].job_id)
        assert len(ids) == 1, "the one in the way is named"
        assert (await _seen(store)).last_at == tick + MINUTE
        at = tick + 2 * MINUTE
        both = [_shot(at, dedupe_key="other"), _shot(at + 1, dedupe_key="other")]
        fires = await fire("report", tick=at, next_at=None, new_fires=both)
        assert fires is not None
        assert [one.outcome for one in fires] == [FireOutcome.FIRED, FireOutcome.SKIPPED]

    async def test_a_trigger_leaves_the_ticks_alone(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.schedules.put(structs.replace(_schedule(clock), enabled=False))
        job = new_job(kind="report", queue="mail", dedupe_key="cron:report")
        fire = await store.schedules.trigger("report", job)
        assert fire is not None
        assert (fire.tick, fire.outcome) == (clock.now(), FireOutcome.TRIGGERED)
        again = await store.schedules.trigger("report", job)
        assert again is not None
        assert (again.outcome, again.job_id) == (FireOutcome.SKIPPED, fire.job_id)
        seen = await _seen(store)
        assert (seen.next_at, seen.last_at) == (clock.now() + MINUTE, None)
        assert await store.schedules.trigger("none", job) is None
        assert await counted(store) == {("mail", JobStatus.PENDING): 1}

    async def test_the_history_is_bounded_and_newest_first(
        self, store: Store, clock: MovableClock
    ) -> None:
        for name in ("other", "report"):
            await store.schedules.put(_schedule(clock, name))
        tick = clock.now() + MINUTE
        await store.schedules.fire("other", tick=tick, next_at=None, new_fires=[NewFire(tick)])
        for _ in range(3):
            new_fires = [NewFire(tick + place, None, place) for place in range(FIRES_KEPT - 10)]
            following = tick + FIRES_KEPT - 10
            fires = await store.schedules.fire(
                "report", tick=tick, next_at=following, new_fires=new_fires
            )
            assert fires is not None
            tick = following
        history = await store.schedules.history("report")
        assert [fire.tick for fire in history] == [tick - 1 - place for place in range(FIRES_KEPT)]
        assert [fire.tick for fire in await store.schedules.history("report", limit=2)] == [
            tick - 1,
            tick - 2,
        ]
        assert len(await store.schedules.history("other")) == 1
