"""Operators and schedules: edits that bring no tick back, and what the audit says."""

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
SAID = CronSpec(name="each", expression="* * * * *", kind="work", overlap="allow", missed="all")


class Book:
    """An audit that can be read."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


class Office:
    """An operator with one schedule a minute."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(self.clock)
        self.book = Book()
        self.table = ScheduleActions(self.store, actor="ann", audit=self.book, clock=self.clock)

    async def stored(self) -> Schedule:
        found = await self.store.schedules.get("each")
        assert found is not None
        return found


@pytest.fixture
async def office() -> Office:
    made = Office()
    await made.table.create(SAID)
    return made


async def test_an_edit_of_something_else_keeps_the_tick(office: Office) -> None:
    office.clock.advance(90)
    before = await office.stored()
    view = await office.table.edit("each", ScheduleChange(payload=b'{"a":1}', jitter_s=2.0))
    after = await office.stored()
    assert before.next_at == after.next_at, "one is due and stays due"
    assert (view.payload, view.jitter_s) == ({"a": 1}, 2.0)
    assert (await cron_tick_once(office.store)).fired == 1


async def test_an_edit_beside_a_fire_fires_nothing_twice(office: Office) -> None:
    office.clock.advance(60)
    real, fired = office.store.schedules.put, 0

    async def put(schedule: Schedule, *, expect: int | None = None) -> bool:
        nonlocal fired
        if not fired:
            fired = (await cron_tick_once(office.store)).fired
        return await real(schedule, expect=expect)

    office.store.schedules.put = put  # type: ignore[method-assign]
    await office.table.edit("each", ScheduleChange(payload=b"[]"))
    assert fired == 1
    stored = await office.stored()
    assert (stored.payload, stored.next_at) == (b"[]", office.clock.now() + MINUTE)
    assert (await cron_tick_once(office.store)).fired == 0


async def test_an_edit_that_never_gets_through_is_a_conflict(office: Office) -> None:
    async def put(schedule: Schedule, *, expect: int | None = None) -> bool:
        return False

    office.store.schedules.put = put  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="changes all the time"):
        await office.table.disable("each")


async def test_ticks_while_disabled_are_not_missed_ones(office: Office) -> None:
    await office.table.disable("each")
    office.clock.advance(600)
    assert (await cron_tick_once(office.store)).fired == 0
    await office.table.enable("each")
    assert (await cron_tick_once(office.store)).fired == 0
    office.clock.advance(60)
    assert (await cron_tick_once(office.store)).fired == 1


async def test_enabling_after_a_clock_was_set_back_repeats_nothing(office: Office) -> None:
    office.clock.advance(600)
    await cron_tick_once(office.store)
    office.clock.jump(-300)
    await office.table.disable("each")
    view = await office.table.enable("each")
    assert view.next_at == to_datetime(office.clock.now() + 360 * SECOND)


async def test_a_mended_expression_is_in_use_again(office: Office) -> None:
    broken = structs.replace(await office.stored(), expression="no", next_at=None)
    await office.store.schedules.put(broken)
    await cron_tick_once(office.store)
    view = await office.table.get("each")
    assert not view.enabled
    assert "has 1 fields" in str(view.error)
    with pytest.raises(BadCron):
        await office.table.edit("each", ScheduleChange(missed="once"))
    view = await office.table.edit("each", ScheduleChange(expression="@hourly"))
    assert (view.enabled, view.error) == (True, None)
    assert view.next_at is not None
    await office.table.disable("each")
    view = await office.table.edit("each", ScheduleChange(expression="@daily"))
    assert not view.enabled, "a person disabled it"


async def test_what_cannot_be_read_can_be_disabled(office: Office) -> None:
    await office.store.schedules.put(structs.replace(await office.stored(), expression="no"))
    for _ in range(2):
        assert not (await office.table.disable("each")).enabled
    with pytest.raises(BadCron):
        await office.table.enable("each")


async def test_a_broken_schedule_that_a_person_disabled_stays_so(office: Office) -> None:
    broken = structs.replace(await office.stored(), enabled=False, next_at=None, error="bad")
    await office.store.schedules.put(broken)
    assert (await office.table.disable("each")).error is None
    view = await office.table.edit("each", ScheduleChange(expression="@daily"))
    assert not view.enabled


async def test_a_history_has_no_end_but_its_own(office: Office) -> None:
    office.clock.advance(180)
    await cron_tick_once(office.store)
    for limit, wanted in ((-1, 0), (2, 2), (10_000, 3)):
        assert len(await office.table.history("each", limit=limit)) == wanted


async def test_every_action_is_written_down_without_payloads(office: Office) -> None:
    table = office.table
    secret: Any = b'{"card":"4242"}'
    await table.edit("each", ScheduleChange(expression="@daily", payload=secret))
    await table.disable("each")
    await table.enable("each")
    await table.trigger("each")
    await table.delete("each")
    said = [(entry.actor, entry.action, entry.subject) for entry in office.book.entries]
    assert said == [
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
    assert "4242" not in repr(office.book.entries)
