"""Read-only queries: queues, workers, overview, lists and single jobs."""

import json

import pytest

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from tests.ops.harness import StoreHarness


async def test_a_queue_shows_its_counts_its_lag_and_who_serves_it(harness: StoreHarness) -> None:
    await harness.store.queues.ensure("mail", slots=20)
    await harness.enqueue(3)
    await harness.enqueue(1, delay_s=60)
    await harness.register_worker("mail")
    await harness.claim(count=1)
    harness.clock.advance(5)
    queue = await queries.queue(harness.store, "mail", clock=harness.clock)
    assert queue.configured
    assert queue.slots == 20
    assert queue.workers == 1
    assert queue.lag_s == 5
    assert {status: n for status, n in queue.counts.items() if n} == {
        JobStatus.PENDING: 2,
        JobStatus.RUNNING: 1,
        JobStatus.SCHEDULED: 1,
    }
    assert set(queue.counts) == set(JobStatus)


async def test_A17_a_queue_with_jobs_but_without_settings_is_shown(harness: StoreHarness) -> None:
    await harness.enqueue(2, queue="stray")
    (queue,) = await queries.queues(harness.store, clock=harness.clock)
    assert (queue.name, queue.configured, queue.counts[JobStatus.PENDING]) == ("stray", False, 2)


async def test_an_unknown_queue_is_not_found(harness: StoreHarness) -> None:
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        await queries.queue(harness.store, "nowhere")


async def test_L7_only_live_workers_are_shown(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    (worker,) = await queries.workers(harness.store, clock=harness.clock)
    assert (worker.host_id, worker.label, worker.pid) == ("01HOSTA", "web-worker-1-a", 7)
    assert worker.queues == ("mail",)
    harness.clock.advance(16)
    assert await queries.workers(harness.store, clock=harness.clock) == ()


async def test_the_overview_adds_up_the_queues_and_the_minutes(harness: StoreHarness) -> None:
    await harness.enqueue(3)
    await harness.enqueue(2, queue="video")
    await harness.register_worker("mail", "video")
    first, second = await harness.claim(count=2)
    await harness.succeed(first)
    await harness.kill(second)
    found = await queries.overview(harness.store, minutes=3, clock=harness.clock)
    assert found.counts[JobStatus.PENDING] == 3
    assert found.counts[JobStatus.DONE] == found.counts[JobStatus.DEAD] == 1
    assert [queue.name for queue in found.queues] == ["mail", "video"]
    assert len(found.minutes) == 3
    last = found.minutes[-1]
    assert (last.enqueued, last.done, last.dead) == (5, 1, 1)
    assert last.mean_run_s == 1.0
    assert found.minutes[0].done == 0
    assert found.minutes[0].mean_run_s is None


async def test_A14_a_list_continues_by_cursor_and_never_repeats(harness: StoreHarness) -> None:
    ids = await harness.enqueue(25)
    found: list[str] = []
    after = None
    pages = 0
    while True:
        page = await queries.jobs(harness.store, Filter(queue="mail"), limit=10, after=after)
        found.extend(job.id for job in page.jobs)
        pages += 1
        await harness.enqueue(1, queue="mail")
        after = page.next
        if after is None:
            break
    assert pages == 3
    assert found == list(reversed(ids))


@pytest.mark.parametrize("limit", [0, -1, 1_001])
async def test_A14_a_page_has_a_bound(harness: StoreHarness, limit: int) -> None:
    with pytest.raises(BadOption, match="limit"):
        await queries.jobs(harness.store, Filter(), limit=limit)


async def test_a_filtered_list_holds_only_what_matches(harness: StoreHarness) -> None:
    await harness.enqueue(2)
    (wanted,) = await harness.enqueue(1, kind="render", queue="video", tags=("vip",))
    for chosen in (
        Filter(queue="video"),
        Filter(kind="render"),
        Filter(tag="vip"),
        Filter(queue="video", statuses=(JobStatus.PENDING,)),
    ):
        assert [job.id for job in (await queries.jobs(harness.store, chosen)).jobs] == [wanted]


async def test_counts_stop_at_their_cap(harness: StoreHarness) -> None:
    await harness.enqueue(12)
    few = await queries.count(harness.store, Filter(queue="mail"), cap=20)
    many = await queries.count(harness.store, Filter(queue="mail"), cap=10)
    assert (few.jobs, few.more) == (12, False)
    assert (many.jobs, many.more) == (10, True)


async def test_one_job_in_full(harness: StoreHarness) -> None:
    payload = b'{"to":"a@b.c","password":"hunter2","nested":{"api_key":"k","n":[{"token":"t"}]}}'
    (job_id,) = await harness.enqueue_jobs(
        NewJob(kind="send", queue="mail", payload=payload, tags=("vip",), max_attempts=2)
    )
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    await harness.fail(claimed, "the server said no")
    job = await queries.job(harness.store, job_id, clock=harness.clock)
    assert job.status is JobStatus.FAILED
    assert job.attempts == 1
    assert [error.message for error in job.errors] == ["the server said no"]
    assert job.tags == ("vip",)
    assert job.payload["to"] == "a@b.c"
    text = job.to_json().decode()
    for secret in ("hunter2", '"k"', '"t"'):
        assert secret not in text
    revealed = await queries.job(harness.store, job_id.lower(), reveal=True, clock=harness.clock)
    assert revealed.payload == json.loads(payload)


async def test_rare_options_are_shown_for_jobs_that_have_some(harness: StoreHarness) -> None:
    options = {"note": "at night", "level": None, "token": "hunter2"}
    plain, optioned = await harness.enqueue_jobs(
        NewJob(kind="send", queue="mail"), NewJob(kind="send", queue="mail", options=options)
    )
    job = await queries.job(harness.store, optioned, clock=harness.clock)
    assert job.options == {"note": "at night", "level": None, "token": "***"}
    assert json.loads(job.to_json())["options"] == job.options
    revealed = await queries.job(harness.store, optioned, reveal=True, clock=harness.clock)
    assert revealed.options == options
    document = json.loads((await queries.job(harness.store, plain, clock=harness.clock)).to_json())
    assert "options" not in document
    assert "timeout_s" in document


async def test_the_result_and_the_time_it_took(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    await harness.register_worker("mail")
    (claimed,) = await harness.claim()
    harness.clock.advance(3)
    running = await queries.job(harness.store, job_id, clock=harness.clock)
    assert (running.worker, running.ran_s) == ("web-worker-1-a", 3)
    await harness.succeed(claimed, b'{"sent":1}')
    job = await queries.job(harness.store, job_id, clock=harness.clock)
    assert (job.status, job.result, job.ran_s) == (JobStatus.DONE, {"sent": 1}, 3)
    assert job.worker is None


async def test_a_malformed_id_and_an_unknown_one_raise_different_errors(
    harness: StoreHarness,
) -> None:
    with pytest.raises(BadOption, match="is not a job id"):
        await queries.job(harness.store, "job-17")
    with pytest.raises(NotFound, match="there is no job"):
        await queries.job(harness.store, "01JABCDEFGHJKMNPQRSTVWXYZ0")


async def test_views_are_json_with_times_as_text(harness: StoreHarness) -> None:
    (job_id,) = await harness.enqueue(1)
    document = json.loads((await queries.job(harness.store, job_id, clock=harness.clock)).to_json())
    assert document["id"] == job_id
    assert document["status"] == "pending"
    assert document["enqueued_at"].endswith("Z")
    overview = json.loads((await queries.overview(harness.store, clock=harness.clock)).to_json())
    assert overview["counts"]["pending"] == 1
