"""The story of a job: attempts with their workers, what made it, what it made, who holds it."""

import pytest

from forge_jobs.core.job import NewJob
from forge_jobs.core.parent import Via, with_parent
from forge_jobs.ops import queries
from forge_jobs.ops.story import story
from forge_jobs.store.worker_versions import record_worker
from tests.ops.harness import StoreHarness


async def test_each_attempt_has_its_worker_and_its_time(harness: StoreHarness) -> None:
    [job_id] = await harness.enqueue(1)
    owner = await harness.register_worker("mail")
    await record_worker(harness.store.settings, owner, label="web-1", version="2.1")
    harness.clock.advance(3)
    [job] = await harness.claim()
    harness.clock.advance(2)
    await harness.fail(job)
    await harness.store.processes.deregister(owner)
    told = await story(harness.store, job_id, clock=harness.clock)
    seen = [(one.kind.value, one.duration_s) for one in told.spans[:2]]
    assert seen == [("waiting", 3.0), ("attempt", 2.0)]
    attempt, pause = told.spans[1], told.spans[2]
    assert (attempt.worker, attempt.version, attempt.error) == ("web-1", "2.1", "boom")
    assert pause.kind.value == "back-off"
    assert [reason.code for reason in pause.why] == ["retry", "no_worker"]


async def test_a_copy_names_its_original_and_how_it_differs(harness: StoreHarness) -> None:
    [job_id] = await harness.enqueue(1, payload=b'{"to":"ann","password":"x"}')
    copy_id = await harness.actions.duplicate_with(job_id, {"to": "bob", "password": "***"})
    told = await story(harness.store, copy_id, clock=harness.clock)
    assert told.parent is not None
    assert (told.parent.via, told.parent.id) == (Via.COPY, job_id)
    assert [(one.path, one.was, one.now) for one in told.changes] == [("to", "ann", "bob")]
    original = await story(harness.store, job_id, clock=harness.clock)
    assert [job.id for job in original.children.jobs] == [copy_id]
    # the link is no option of the user
    assert (await queries.job(harness.store, copy_id, clock=harness.clock)).options == {}


async def test_more_children_than_are_shown(harness: StoreHarness) -> None:
    [job_id] = await harness.enqueue(1)
    child = with_parent(NewJob(kind="send", queue="mail"), job_id, Via.HANDLER)
    made = await harness.enqueue_jobs(*[child] * 25)
    told = await story(harness.store, job_id, clock=harness.clock)
    assert [job.id for job in told.children.jobs] == made[:4:-1]
    assert told.children.more


async def test_who_holds_the_limit_of_a_held_job(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    [runs] = await harness.enqueue(1, limit_key="tenant-a")
    await harness.claim()
    await harness.enqueue(1, limit_key="tenant-b")
    [held] = await harness.enqueue(1, limit_key="tenant-a", hold=True)
    told = await story(harness.store, held, clock=harness.clock)
    assert [job.id for job in told.holders] == [runs]


async def test_jobs_of_the_same_dedupe_key_are_linked(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    [first] = await harness.enqueue(1, dedupe_key="welcome")
    [job] = await harness.claim()
    await harness.succeed(job)
    [second] = await harness.enqueue(1, dedupe_key="welcome")
    told = await story(harness.store, second, clock=harness.clock)
    assert [one.id for one in told.same_key] == [first]


async def test_an_unknown_job_has_no_story(harness: StoreHarness) -> None:
    with pytest.raises(Exception, match="there is no job"):
        await story(harness.store, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
