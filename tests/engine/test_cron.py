"""The cron service: every tick fires once, however many processes run it; and its errors."""

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from forge_jobs import CronTickReport, cron_tick_once, ensure_schedules
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.core.errors import BadCron, Unavailable, Unknown
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.requests.opened_store import OpenedStore
from forge_jobs.engine.requests.published_kinds_cache import PublishedKindsCache
from forge_jobs.engine.requests.routing import DefaultRouter, KindPrefixRouter, Router
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import Handler, HandlerRegistry, RunIn
from forge_jobs.engine.services.cron import CronService
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.schedules import FireOutcome, Schedule
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import Rig, until

MINUTE = 60 * SECOND


class Bench:
    """A store at a standing clock, one schedule a minute."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(self.clock)

    async def declare(self, name: str = "report", **said: Any) -> Schedule:
        said.setdefault("expression", "* * * * *")
        (stored,) = await ensure_schedules(self.store, [CronSpec(name=name, kind=name, **said)])
        return stored

    async def tick(self, seconds: float = 0, **options: Any) -> CronTickReport:
        self.clock.advance(seconds)
        return await cron_tick_once(self.store, **options)

    def service(self, **options: Any) -> CronService:
        router: Router = options.pop("router", DefaultRouter())
        handlers: HandlerRegistry = options.pop("handlers", HandlerRegistry())
        kinds = PublishedKindsCache(OpenedStore(self.store), self.clock)
        requests = JobRequests(handlers, kinds, router=router)
        return CronService(self.store, requests=requests, entropy=SeededEntropy(1), **options)

    async def get(self, name: str = "report") -> Schedule:
        found = await self.store.schedules.get(name)
        assert found is not None
        return found

    async def jobs(self) -> list[Any]:
        return list(reversed((await self.store.jobs.page(Filter(), limit=500)).jobs))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def counts(report: CronTickReport) -> tuple[int, int, int, int, int]:
    return report.fired, report.skipped, report.missed, report.seeded, report.errors


async def test_a_tick_becomes_a_job(bench: Bench) -> None:
    await bench.declare(payload=b'{"a":1}', queue="mail", max_attempts=2)
    assert counts(await bench.tick(59)) == (0, 0, 0, 0, 0)
    report = await bench.tick(1)
    assert counts(report) == (1, 0, 0, 0, 0)
    assert report.next_due == bench.clock.now() + MINUTE
    (job,) = await bench.jobs()
    assert (job.kind, job.queue, job.payload, job.max_attempts) == ("report", "mail", b'{"a":1}', 2)
    assert job.tags == ("cron:report", "tick:2026-01-01T09:01:00Z")
    assert counts(await bench.tick()) == (0, 0, 0, 0, 0)


async def test_L6_a_skipped_tick_is_no_fired_one(bench: Bench) -> None:
    await bench.declare(overlap="skip")
    assert counts(await bench.tick(60)) == (1, 0, 0, 0, 0)
    assert counts(await bench.tick(60)) == (0, 1, 0, 0, 0)
    assert len(await bench.jobs()) == 1
    outcomes = [fire.outcome for fire in await bench.store.schedules.history("report")]
    assert outcomes == [FireOutcome.SKIPPED, FireOutcome.FIRED]


async def test_overlap_allow_fires_while_a_job_is_live(bench: Bench) -> None:
    await bench.declare(overlap="allow")
    assert [(await bench.tick(60)).fired for _ in range(3)] == [1, 1, 1]
    assert len(await bench.jobs()) == 3


@pytest.mark.parametrize(("missed", "fired", "let_go"), [("once", 1, 4), ("all", 5, 0)])
async def test_missed_ticks_follow_their_policy(
    bench: Bench, missed: str, fired: int, let_go: int
) -> None:
    await bench.declare(missed=missed, overlap="allow")
    assert counts(await bench.tick(5 * 60)) == (fired, 0, let_go, 0, 0)
    ticks = [job.tags[1] for job in await bench.jobs()]
    assert ticks[-1] == "tick:2026-01-01T09:05:00Z"
    assert ticks == sorted(set(ticks))


async def test_skip_drops_old_ticks_and_counts_them(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.declare(expression="0 * * * *", missed="skip")
    with caplog.at_level(logging.WARNING, "forge_jobs.cron"):
        assert counts(await bench.tick(3 * 3_600 + 61)) == (0, 0, 3, 0, 0)
    assert "missed" in caplog.text
    (fire,) = await bench.store.schedules.history("report")
    assert (fire.outcome, fire.missed) == (FireOutcome.MISSED, 2)
    assert (await bench.get()).last_at is None
    assert counts(await bench.tick(3_600 - 61)) == (1, 0, 0, 0, 0)


@pytest.mark.parametrize("fate", ["fires", "loses", "fails"])
async def test_a_slow_call_for_one_schedule_makes_no_other_fire_late(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    for name in ("first", "second"):
        await bench.declare(name, expression="0 * * * *", missed="skip")
    fire = bench.store.schedules.fire

    async def slow(name: str, **said: Any) -> Any:
        monkeypatch.setattr(bench.store.schedules, "fire", fire)
        bench.clock.advance(900)
        if fate == "fails":
            raise Unavailable("the server is gone")
        if fate == "loses":
            await fire(name, **said)
        return await fire(name, **said)

    monkeypatch.setattr(bench.store.schedules, "fire", slow)
    bench.clock.advance(3_600)
    for _ in range(2):
        await bench.service().tick()
    outcomes = {}
    for name in ("first", "second"):
        outcomes[name] = [one.outcome for one in await bench.store.schedules.history(name)]
    late = FireOutcome.MISSED
    assert outcomes["second"] == [late]
    assert outcomes["first"] == [late if fate == "fails" else FireOutcome.FIRED]


async def test_catching_up_is_done_in_bounded_steps(bench: Bench) -> None:
    await bench.declare(missed="all", missed_limit=250, overlap="allow")
    report = await bench.tick(1_000 * 60)
    assert (report.fired, len(await bench.jobs())) == (250, 250)


async def test_a_clock_that_is_set_back_fires_nothing_twice(bench: Bench) -> None:
    await bench.declare(missed="all", overlap="allow")
    assert (await bench.tick(600)).fired == 10
    bench.clock.jump(-300)
    assert [(await bench.tick(60)).fired for _ in range(5)] == [0] * 5
    assert (await bench.tick(60)).fired == 1
    ticks = [job.tags[1] for job in await bench.jobs()]
    assert len(set(ticks)) == len(ticks) == 11


async def test_jitter_delays_the_job_and_not_the_tick(bench: Bench) -> None:
    await bench.declare(jitter_s=30.0, overlap="allow")
    for _ in range(20):
        await bench.tick(60)
    delays: set[Instant] = set()
    for place, job in enumerate(await bench.jobs(), 1):
        tick = 1_767_258_000 * SECOND + place * MINUTE
        assert 0 <= job.run_at - tick <= 30 * SECOND
        delays.add(job.run_at - tick)
    assert len(delays) > 10


async def test_low_a_seeded_schedule_has_not_fired(bench: Bench) -> None:
    await bench.store.schedules.put(Schedule(name="new", expression="* * * * *", kind="new"))
    assert counts(await bench.tick()) == (0, 0, 0, 1, 0)
    seeded = await bench.get("new")
    assert (seeded.next_at, seeded.last_at) == (bench.clock.now() + MINUTE, None)
    assert await bench.store.schedules.history("new") == []
    assert counts(await bench.tick(60)) == (1, 0, 0, 0, 0)


async def test_a_bad_expression_disables_that_schedule_only(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    good = await bench.declare("good")
    for name, change in {
        "words": {"expression": "every day"},
        "zone": {"zone": "Mars/Base"},
        "policy": {"missed": "sometimes"},
        "template": {"template": b"{"},
    }.items():
        broken: Any = replace(good, name=name, **change)
        await bench.store.schedules.put(broken)
    report = await bench.tick(60)
    assert (report.fired, report.errors) == (1, 4)
    for name in ("words", "zone", "policy", "template"):
        stopped = await bench.get(name)
        assert (stopped.enabled, stopped.next_at) == (False, None)
        assert stopped.error
    assert "every day" in str((await bench.get("words")).error)
    assert "schedule disabled" in caplog.text
    assert counts(await bench.tick(60)) == (0, 1, 0, 0, 0), "the good one goes on"


@pytest.mark.parametrize("lost", [Unavailable("down"), Unknown("no answer")])
async def test_A9_a_passing_error_disables_nothing_and_loses_no_tick(
    bench: Bench, lost: Exception
) -> None:
    await bench.declare(overlap="allow")
    await bench.declare("other", overlap="allow")
    real, failing = bench.store.schedules.fire, [True]

    async def fire(name: str, **how: Any) -> Any:
        if name == "report" and failing:
            if isinstance(lost, Unknown):
                await real(name, **how)  # it took effect, only the answer was lost
            raise lost
        return await real(name, **how)

    bench.store.schedules.fire = fire  # type: ignore[method-assign]
    report = await bench.tick(60)
    assert (report.fired, report.errors) == (1, 1), "the other one is not held up"
    assert (await bench.get()).enabled
    assert (await bench.get()).error is None
    if isinstance(lost, Unavailable):
        with pytest.raises(Unavailable):
            await bench.tick()
        assert ((await bench.service().tick()).after_s or 0) <= 1, "tried again soon"
    failing.clear()
    await bench.service().tick()
    assert sorted(job.kind for job in await bench.jobs()) == ["other", "report"]


async def test_the_service_backs_off_on_errors_and_sleeps_until_the_next_tick(
    bench: Bench,
) -> None:
    await bench.declare(expression="*/4 * * * * *", overlap="allow")
    service = bench.service()
    following = await service.tick()
    assert following.is_exact
    assert following.after_s == pytest.approx(4, abs=0.1)
    bench.clock.advance(3.5)
    following = await service.tick()
    assert following.after_s == pytest.approx(0.5, abs=0.1)
    bench.clock.advance(0.51)
    assert (await service.tick()).after_s == pytest.approx(4, abs=0.1)
    assert len(await bench.jobs()) == 1
    await bench.store.schedules.delete("report")
    assert not (await service.tick()).is_exact

    async def due(**how: Any) -> Any:
        raise Unavailable("down")

    bench.store.schedules.due = due  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await service.tick()


async def test_a_kind_goes_to_its_queue(bench: Bench) -> None:
    handlers = HandlerRegistry()
    handlers.register(Handler("known", RunIn.LOOP, lambda data, make_context: None, queue="mail"))
    for name in ("known", "published", "gh_unknown", "set"):
        await bench.declare(name, queue="here" if name == "set" else None)
    await bench.store.queues.publish({"published": "video", "known": "elsewhere"})
    bench.clock.advance(60)
    await bench.service(handlers=handlers, router=KindPrefixRouter()).tick()
    assert {job.kind: job.queue for job in await bench.jobs()} == {
        "known": "mail",
        "published": "video",
        "gh_unknown": "gh",
        "set": "here",
    }


# ------------------------------------------------------------------------------- declarations


async def test_declared_schedules_follow_the_code(bench: Bench) -> None:
    await bench.declare(overlap="allow")
    await bench.tick(60)
    changed = await bench.declare(expression="*/5 * * * *", payload=b'{"n":2}')
    stored = await bench.get()
    assert (stored.expression, stored.payload, stored.declared) == (
        "*/5 * * * *",
        b'{"n":2}',
        True,
    )
    assert stored.next_at == bench.clock.now() + 4 * MINUTE
    assert stored.version == changed.version
    assert stored.last_at == bench.clock.now()
    again = await bench.declare(expression="*/5 * * * *", payload=b'{"n":2}')
    assert again.version == stored.version, "nothing changed, nothing is written"


async def test_declarations_never_undo_what_operators_did(bench: Bench) -> None:
    first = await bench.declare()
    await bench.store.schedules.put(replace(first, expression="@daily", edited=True))
    assert (await bench.declare(expression="@hourly")).expression == "@daily"
    off = await bench.declare("off")
    await bench.store.schedules.put(replace(off, enabled=False, next_at=None))
    followed = await bench.declare("off", expression="@hourly")
    assert (followed.expression, followed.enabled, followed.next_at) == ("@hourly", False, None)
    await bench.store.schedules.put(Schedule(name="mine", expression="@daily", kind="x"))
    assert (await bench.declare("mine")).expression == "@daily"


async def test_mended_code_puts_a_broken_schedule_back_in_use(bench: Bench) -> None:
    stored = await bench.declare()
    broken = replace(stored, expression="no", enabled=False, next_at=None, error="bad")
    await bench.store.schedules.put(broken)
    mended = await bench.declare()
    assert (mended.enabled, mended.error) == (True, None)
    assert mended.next_at == bench.clock.now() + MINUTE


async def test_a_declaration_is_checked(bench: Bench) -> None:
    with pytest.raises(BadCron):
        await bench.declare(expression="nonsense")
    assert await ensure_schedules(bench.store, []) == []


async def test_F15_many_that_declare_and_fire_at_once_make_one_of_each(bench: Bench) -> None:
    await asyncio.gather(*(bench.declare(overlap="allow") for _ in range(8)))
    assert (await bench.get()).version == 1
    bench.clock.advance(60)
    reports = await asyncio.gather(*(cron_tick_once(bench.store) for _ in range(8)))
    assert sum(report.fired for report in reports) == 1
    assert len(await bench.jobs()) == 1


# ------------------------------------------------------------------------------- real workers


async def test_every_service_on_every_node_gives_the_same_result(rig: Rig) -> None:
    """Leadership only saves work: here all five nodes believe to be the coordinator."""
    real_lead, asked = rig.store.processes.lead, 0

    async def lead(name: str, key: int, *, ttl_s: float) -> bool:
        nonlocal asked
        asked += 1
        await real_lead(name, key, ttl_s=ttl_s)
        return True

    rig.store.processes.lead = lead  # type: ignore[method-assign]
    ran: list[str] = []

    async def body(ctx: Context, given: Any) -> None:
        ran.append(ctx.job.tags[1] if ctx.job.tags else ctx.job.id)

    rig.on("work", body)
    spec = CronSpec(
        name="each", expression="* * * * * *", kind="work", queue="q", missed="all", overlap="allow"
    )
    await ensure_schedules(rig.store, [spec])
    plain = await rig.add_many("work", 50)
    late = await rig.add_many("work", 10, delay_s=1.0)
    async with (
        rig.working({"q": 50}), rig.working({"q": 50}), rig.working({"q": 50}),
        rig.working({"q": 50}), rig.working({"q": 50}),
    ):  # fmt: skip
        await until(lambda: len([tag for tag in ran if tag.startswith("tick:")]) >= 2)
        for job_id in plain + late:
            await rig.reaches(job_id, JobStatus.DONE)
        # No more ticks, and the last ones worked off: in between, a later one may be ahead.
        await rig.store.schedules.delete("each")

        async def over() -> bool:
            return set(await rig.counts()) == {"done"}

        await until(over)
    ticks = sorted(tag for tag in ran if tag.startswith("tick:"))
    assert asked >= 5
    assert len(set(ticks)) == len(ticks)
    seconds = [int(tag[-3:-1]) for tag in ticks]
    assert all((b - a) % 60 == 1 for a, b in pairwise(seconds)), ticks
    assert len(ran) - len(ticks) == 60
    assert await rig.counts() == {"done": 60 + len(ticks)}


async def test_a_change_wakes_the_service(rig: Rig) -> None:
    ran: list[str] = []
    rig.on("work", lambda ctx, given: ran.append(ctx.job.id))
    async with rig.working():
        await ensure_schedules(
            rig.store,
            [CronSpec(name="work", expression="* * * * * *", kind="work", queue="q")],
        )
        await until(lambda: len(ran) >= 1)
