"""The audit: every operator action writes an entry to the store."""

import pytest

from forge_jobs.core.errors import BadOption
from forge_jobs.core.selection import Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.entropy import SECRET_ENTROPY
from forge_jobs.ops.actions import Action, JobActions
from forge_jobs.ops.audit import read_entries
from forge_jobs.ops.declared_limits import LimitActions
from forge_jobs.ops.operations import Operations, OperationState
from forge_jobs.ops.rate_limits import RateLimitActions
from tests.ops.harness import StoreHarness


async def test_every_kind_of_action_writes_an_entry(harness: StoreHarness) -> None:
    ids = await harness.enqueue(3)
    actions = JobActions(harness.store, actor="ada", clock=harness.clock)
    await actions.cancel(Selection(filter=Filter(queue="mail")))
    await actions.pause("mail")
    await LimitActions(harness.store, actor="grace", clock=harness.clock).set(
        "task:send", concurrency=2
    )
    await RateLimitActions(harness.store, actor="grace", clock=harness.clock).set_rate(
        "smtp", "5/s"
    )
    await actions.duplicate_with(ids[0], {"n": 1})
    page = await read_entries(harness.store)
    summary = [(line.actor, line.action, line.subject) for line in page.entries]
    assert summary == [
        ("ada", "duplicate", ids[0]),
        ("grace", "set limit", "smtp"),
        ("grace", "set limit", "task:send"),
        ("ada", "pause", "mail"),
        ("ada", "cancel", "jobs where queue=mail"),
    ]
    assert page.entries[-1].detail["changed"] == 3


async def test_pages_continue_by_cursor_within_their_filter(harness: StoreHarness) -> None:
    actions = JobActions(harness.store, actor="ada", clock=harness.clock)
    for n in range(6):
        await actions.record_action("pause" if n % 2 else "resume", f"queue {n}")
    first = await read_entries(harness.store, action="pause", limit=2)
    assert [line.subject for line in first.entries] == ["queue 5", "queue 3"]
    rest = await read_entries(harness.store, action="pause", limit=2, after=first.next)
    assert ([line.subject for line in rest.entries], rest.next) == (["queue 1"], None)
    with pytest.raises(BadOption, match="no cursor"):
        await read_entries(harness.store, after="x")


async def test_an_interrupted_bulk_action_records_what_it_did(harness: StoreHarness) -> None:
    await harness.enqueue(700)

    def enough(acted: object) -> None:
        raise KeyboardInterrupt

    actions = JobActions(harness.store, actor="ada", clock=harness.clock)
    with pytest.raises(KeyboardInterrupt):
        await actions.cancel(Selection(filter=Filter(queue="mail")), progress=enough)
    (line,) = (await read_entries(harness.store)).entries
    assert (line.detail["changed"], line.detail["whole"]) == (500, False)
    left = await harness.store.metrics.count(Filter(statuses=(JobStatus.PENDING,)), cap=1_000)
    assert left.jobs == 200


async def test_a_bulk_operation_is_recorded_when_it_begins_and_when_it_is_stopped(
    harness: StoreHarness,
) -> None:
    """If the process dies only the first entry exists; ``close`` records how far it came."""
    await harness.enqueue(1_200)
    operations = Operations(harness.clock, SECRET_ENTROPY)
    actions = JobActions(harness.store, actor="ada", clock=harness.clock)
    chosen = Selection(filter=Filter(queue="mail"))
    begun = await operations.start(actions, Action.CANCEL, chosen, actor="ada")
    (line,) = (await read_entries(harness.store, action="cancel begins")).entries
    assert (line.detail["operation"], line.detail["expected"]) == (begun.id, 1_200)
    await operations.close()
    ended = operations.get(begun.id)
    assert (ended.state, operations.running) == (OperationState.STOPPED, 0)
    newest, _ = (await read_entries(harness.store)).entries
    assert (newest.action, newest.detail["whole"]) == ("cancel", False)
    assert newest.detail["changed"] == ended.changed < 1_200
