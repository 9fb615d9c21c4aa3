"""Operator actions on schedules: edits never repeat a tick, and the audit records them."""

from typing import Any

import pytest
from msgspec import structs

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.core.errors import BadCron, Conflict
from forge_jobs.core.instant import SECOND, to_datetime
from forge_jobs.core.schedule import CronSpec
from forge_jobs.engine.services import cron_tick_once
from forge_jobs.ops.audit import AuditEntry
from forge_jobs.ops.schedules import ScheduleActions, ScheduleChange
from forge_jobs.store.schedules import Schedule
from forge_jobs.testing.clock import MovableClock

MINUTE = 60 * SECOND
SPEC = CronSpec(name="each", expression="* * * * *", kind="work", overlap="allow", missed="all")


class AuditList:
    """An audit that collects its entries."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


class ScheduleHarness:
    """A memory store with one schedule that fires every minute."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(self.clock)
        self.audit = AuditList()
        self.actions = ScheduleActions(self.store, actor="ann", audit=self.audit, clock=self.clock)

    async def stored(self) -> Schedule:
        found = await self.store.schedules.get("each")
        assert found is not None
        return found


@pytest.fixture
async def harness() -> ScheduleHarness:
    harness = ScheduleHarness()
    await harness.actions.create(SPEC)
    return harness


async def test_an_edit_of_something_else_keeps_the_tick(harness: ScheduleHarness) -> None:
    harness.clock.advance(90)
    before = await harness.stored()
    view = await harness.actions.edit("each", ScheduleChange(payload=b'{"a":1}', jitter_s=2.0))
    after = await harness.stored()
    assert before.next_at == after.next_at, "one is due and stays due"
    assert (view.payload, view.jitter_s) == ({"a": 1}, 2.0)
    assert (await cron_tick_once(harness.store)).fired == 1


async def test_an_edit_during_a_fire_fires_nothing_twice(harness: ScheduleHarness) -> None:
    harness.clock.advance(60)
    real, fired = harness.store.schedules.put, 0

    async def put(schedule: Schedule, *, expect: int | None = None) -> bool:
        nonlocal fired
        if not fired:
            fired = (await cron_tick_once(harness.store)).fired
        return await real(schedule, expect=expect)

    harness.store.schedules.put = put  # type: ignore[method-assign]
    await harness.actions.edit("each", ScheduleChange(payload=b"[]"))
    assert fired == 1
    stored = await harness.stored()
    assert (stored.payload, stored.next_at) == (b"[]", harness.clock.now() + MINUTE)
    assert (await cron_tick_once(harness.store)).fired == 0


async def test_an_edit_that_always_loses_the_race_is_a_conflict(harness: ScheduleHarness) -> None:
    async def put(schedule: Schedule, *, expect: int | None = None) -> bool:
        return False

    harness.store.schedules.put = put  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="changes all the time"):
        await harness.actions.disable("each")


async def test_ticks_while_disabled_do_not_count_as_missed(harness: ScheduleHarness) -> None:
    await harness.actions.disable("each")
    harness.clock.advance(600)
    assert (await cron_tick_once(harness.store)).fired == 0
    await harness.actions.enable("each")
    assert (await cron_tick_once(harness.store)).fired == 0
    harness.clock.advance(60)
    assert (await cron_tick_once(harness.store)).fired == 1


async def test_enabling_after_a_clock_was_set_back_repeats_nothing(
    harness: ScheduleHarness,
) -> None:
    harness.clock.advance(600)
    await cron_tick_once(harness.store)
    harness.clock.jump(-300)
    await harness.actions.disable("each")
    view = await harness.actions.enable("each")
    assert view.next_at == to_datetime(harness.clock.now() + 360 * SECOND)


async def test_a_corrected_expression_enables_the_schedule_again(harness: ScheduleHarness) -> None:
    broken = structs.replace(await harness.stored(), expression="no", next_at=None)
    await harness.store.schedules.put(broken)
    await cron_tick_once(harness.store)
    view = await harness.actions.get("each")
    assert not view.enabled
    assert "has 1 fields" in str(view.error)
    with pytest.raises(BadCron):
        await harness.actions.edit("each", ScheduleChange(missed="once"))
    view = await harness.actions.edit("each", ScheduleChange(expression="@hourly"))
    assert (view.enabled, view.error) == (True, None)
    assert view.next_at is not None
    await harness.actions.disable("each")
    view = await harness.actions.edit("each", ScheduleChange(expression="@daily"))
    assert not view.enabled, "a person disabled it"


async def test_an_invalid_schedule_can_be_disabled(harness: ScheduleHarness) -> None:
    await harness.store.schedules.put(structs.replace(await harness.stored(), expression="no"))
    for _ in range(2):
        assert not (await harness.actions.disable("each")).enabled
    with pytest.raises(BadCron):
        await harness.actions.enable("each")


async def test_an_invalid_schedule_that_an_operator_disabled_stays_disabled(
    harness: ScheduleHarness,
) -> None:
    broken = structs.replace(await harness.stored(), enabled=False, next_at=None, error="bad")
    await harness.store.schedules.put(broken)
    assert (await harness.actions.disable("each")).error is None
    view = await harness.actions.edit("each", ScheduleChange(expression="@daily"))
    assert not view.enabled


async def test_the_limit_of_a_history_is_clamped(harness: ScheduleHarness) -> None:
    harness.clock.advance(180)
    await cron_tick_once(harness.store)
    for limit, wanted in ((-1, 0), (2, 2), (10_000, 3)):
        assert len(await harness.actions.history("each", limit=limit)) == wanted


async def test_every_action_is_audited_without_payloads(harness: ScheduleHarness) -> None:
    actions = harness.actions
    secret: Any = b'{"card":"4242"}'
    await actions.edit("each", ScheduleChange(expression="@daily", payload=secret))
    await actions.disable("each")
    await actions.enable("each")
    await actions.trigger("each")
    await actions.delete("each")
    summary = [(entry.actor, entry.action, entry.subject) for entry in harness.audit.entries]
    assert summary == [
        ("ann", action, "each")
        for action in (
            "create schedule",
            "edit schedule",
            "disable schedule",
            "enable schedule",
            "run schedule",
            "delete schedule",
        )
    ]
    assert "4242" not in repr(harness.audit.entries)
