"""What people see of steps and waits, and what they do: send an event, retry from a step."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import UNSET

from forge_jobs import Forge
from forge_jobs.core.errors import BadOption, NotFound, Refused
from forge_jobs.core.ids import decode
from forge_jobs.core.selection import Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries, steps
from forge_jobs.ops.actions import Action, JobActions, Store
from forge_jobs.ops.audit import Actor, read_entries
from forge_jobs.ops.doctor import cluster_findings
from forge_jobs.ops.event_actions import EventActions
from forge_jobs.ops.step_views import StepState
from tests.ops.order_workflow import order_shop


@pytest.fixture(params=["memory", "sqlite"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Forge]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/ops.db"
    forge = order_shop(url)
    yield forge
    await forge.aclose()


async def waiting_order(shop: Forge, number: int = 7) -> tuple[Store, str]:
    job = await shop.aenqueue("order", {"number": number})
    await shop.adrain()
    return await shop.aready(), job.id


def actions(store: Store) -> EventActions:
    return EventActions(store, actor=Actor("ada", "operator", "10.1.2.3"))


async def test_steps_come_in_the_order_of_time_with_the_open_wait_last(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    page = await steps.job_steps(store, job_id)
    assert [step.name for step in page.steps] == [
        "charge",
        "fetch[box]",
        "fetch[label]",
        "wait:paid",
    ]
    assert [step.state for step in page.steps] == [StepState.STORED] * 3 + [StepState.OPEN]
    assert page.total == 4
    assert page.next is None
    assert all(step.value is UNSET for step in page.steps)
    assert page.steps[0].size > 10
    assert [run.epoch for run in page.runs] == [1]
    assert [step.run for step in page.steps] == [1, 1, 1, 0]


async def test_pages_of_steps_meet_without_a_gap(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    names: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await steps.job_steps(store, job_id, offset=offset, limit=1)
        names += [step.name for step in page.steps]
        offset = page.next
    assert names == ["charge", "fetch[box]", "fetch[label]", "wait:paid"]
    assert (await steps.job_steps(store, job_id, offset=50)).steps == ()


async def test_values_are_masked(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    page = await steps.job_steps(store, job_id, values=True)
    assert page.steps[0].value == {"id": "ch_7", "password": "***"}
    assert b"hunter2" not in page.to_json()
    assert await steps.step_value(store, job_id, "charge") == page.steps[0].value
    assert await steps.step_value(store, job_id, "fetch[box]") == "BOX"


async def test_a_page_of_values_ends_before_it_is_too_large(
    shop: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, job_id = await waiting_order(shop)
    monkeypatch.setattr(steps, "MAX_VALUES_BYTES", 8)
    page = await steps.job_steps(store, job_id, values=True)
    assert [step.name for step in page.steps] == ["charge"]
    assert page.next == 1


async def test_why_names_event_key_deadline_and_remedy(shop: Forge) -> None:
    store, job_id = await waiting_order(shop, 42)
    view = await queries.job(store, job_id)
    reason = view.why[0]
    assert reason.code == "event"
    assert "'paid' with the key '42'" in reason.text
    assert "run now" in reason.text
    assert reason.until is not None
    assert reason.remedy == "forge send paid --key 42"
    assert [(wait.name, wait.key) for wait in view.waits] == [("paid", "42")]


async def test_a_wait_without_a_key_is_answered_through_its_job(shop: Forge) -> None:
    job = await shop.aenqueue("approval", {})
    await shop.adrain()
    store = await shop.aready()
    view = await queries.job(store, job.id)
    assert view.why[0].remedy == f"forge send approve --job {job.id}"
    assert [wait.command for wait in view.waits] == [view.why[0].remedy]
    sent = await actions(store).send("approve", {"by": "ada"}, job_id=job.id.lower())
    assert sent.resumed == 1
    await shop.adrain()
    assert (await queries.job(store, job.id)).result == {"by": "ada"}


async def test_waits_are_found_by_name_and_key_page_by_page(shop: Forge) -> None:
    ids = [(await waiting_order(shop, number))[1] for number in (1, 2, 3)]
    store = await shop.aready()
    found = await steps.waits(store, name="paid", key="2")
    assert [wait.job_id for wait in found.waits] == [ids[1]]
    assert (await steps.waits(store, name="lost")).waits == ()
    first = await steps.waits(store, limit=2)
    rest = await steps.waits(store, limit=2, after=first.next)
    assert [wait.key for wait in (*first.waits, *rest.waits)] == ["1", "2", "3"]
    assert rest.next is None
    with pytest.raises(BadOption, match="give its name too"):
        await steps.waits(store, key="2")
    with pytest.raises(BadOption, match="no cursor"):
        await steps.waits(store, after="nonsense")


async def test_events_are_listed_newest_first_and_masked(shop: Forge) -> None:
    store = await shop.aready()
    for number in range(3):
        await actions(store).send("paid", {"token": "s3cret", "n": number}, key=str(number))
    first = await steps.events(store, name="paid", limit=2)
    assert [event.payload for event in first.events] == [
        {"token": "***", "n": 2},
        {"token": "***", "n": 1},
    ]
    rest = await steps.events(store, name="paid", limit=2, before=first.next)
    assert [event.key for event in rest.events] == ["0"]
    assert rest.next is None


async def test_sending_is_audited_with_before_and_after(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    assert (await actions(store).send("paid", {"by": "card"}, key="7")).resumed == 1
    await shop.adrain()
    assert (await queries.job(store, job_id)).status is JobStatus.DONE
    entry = (await read_entries(store)).entries[0]
    assert (entry.action, entry.subject) == ("send event", "paid 7")
    assert (entry.actor, entry.role, entry.address) == ("ada", "operator", "10.1.2.3")
    assert entry.detail["resumed"] == 1
    assert (entry.before, entry.after) == ({"waiting": 1}, {"waiting": 0})


async def test_an_event_to_a_job_that_ended_is_refused(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    await actions(store).send("paid", {}, key="7")
    await shop.adrain()
    with pytest.raises(Refused, match="is done: it waits for no event"):
        await actions(store).send("paid", {}, job_id=job_id)
    with pytest.raises(BadOption, match="not both"):
        await actions(store).send("paid", {}, job_id=job_id, key="7")
    unknown = job_id[:-1] + ("0" if job_id[-1] != "0" else "1")
    assert decode(unknown) is not None
    with pytest.raises(NotFound):
        await actions(store).send("paid", {}, job_id=unknown)


async def test_a_retry_from_a_step_runs_it_and_later_ones_again(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    await actions(store).send("paid", {"address": "nowhere"}, key="7")
    await shop.adrain()
    assert (await queries.job(store, job_id)).status is JobStatus.DEAD
    with pytest.raises(NotFound, match=r"did you mean 'fetch\[box\]'"):
        await actions(store).retry_from(job_id, "fetch[bax]")
    done = await actions(store).retry_from(job_id, "fetch[label]")
    assert (done.step, done.deleted, done.kept) == ("fetch[label]", 3, 2)
    entry = (await read_entries(store)).entries[0]
    assert (entry.action, entry.subject) == ("retry from step", job_id)
    assert entry.before == {"status": "dead", "steps": 5}
    assert entry.after == {"status": "pending", "steps": 2}
    assert entry.ids == (job_id,)
    left = await steps.job_steps(store, job_id)
    assert [step.name for step in left.steps] == ["charge", "fetch[box]"]


async def test_a_suspended_job_is_not_retried_but_cancelled_first(shop: Forge) -> None:
    store, job_id = await waiting_order(shop)
    with pytest.raises(Refused, match=f"forge jobs cancel {job_id}"):
        await actions(store).retry_from(job_id, "charge")
    await JobActions(store, actor="ada").cancel(Selection(ids=(job_id,)))
    assert (await actions(store).retry_from(job_id, "charge")).deleted == 3


async def test_suspended_jobs_are_counted_filtered_and_deleted(shop: Forge) -> None:
    store, _ = await waiting_order(shop)
    assert (await queries.overview(store)).counts[JobStatus.SUSPENDED] == 1
    chosen = Filter(statuses=(JobStatus.SUSPENDED,))
    acting = JobActions(store, actor="ada")
    assert (await acting.preview(Action.DELETE, chosen)).jobs == 1
    assert (await acting.delete(Selection(filter=chosen))).changed == 1
    assert (await steps.waits(store)).waits == ()


async def test_the_doctor_counts_suspended_jobs_of_a_queue_that_nobody_serves(shop: Forge) -> None:
    store, _ = await waiting_order(shop)
    findings = cluster_findings(await queries.overview(store))
    texts = [finding.message for finding in findings if finding.subject == "queue orders"]
    assert texts == ["1 job waits (1 of them for an event): no living worker serves queue 'orders'"]
