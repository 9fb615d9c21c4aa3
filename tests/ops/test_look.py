"""What an operator sees."""

import json

import pytest

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from tests.ops.desk import Desk


async def test_a_queue_shows_its_counts_its_lag_and_who_serves_it(desk: Desk) -> None:
    await desk.store.queues.ensure("mail", slots=20)
    await desk.some(3)
    await desk.some(1, delay_s=60)
    await desk.hire("mail")
    await desk.claim(count=1)
    desk.clock.advance(5)
    queue = await queries.queue(desk.store, "mail", clock=desk.clock)
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


async def test_A17_a_queue_with_jobs_but_without_settings_is_shown(desk: Desk) -> None:
    await desk.some(2, queue="stray")
    (queue,) = await queries.queues(desk.store, clock=desk.clock)
    assert (queue.name, queue.configured, queue.counts[JobStatus.PENDING]) == ("stray", False, 2)


async def test_an_unknown_queue_is_not_found(desk: Desk) -> None:
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        await queries.queue(desk.store, "nowhere")


async def test_L7_only_living_workers_are_shown(desk: Desk) -> None:
    await desk.hire("mail")
    (worker,) = await queries.workers(desk.store, clock=desk.clock)
    assert (worker.host_id, worker.label, worker.pid) == ("01HOSTA", "web-worker-1-a", 7)
    assert worker.queues == ("mail",)
    desk.clock.advance(16)
    assert await queries.workers(desk.store, clock=desk.clock) == ()


async def test_the_overview_adds_up_the_queues_and_the_minutes(desk: Desk) -> None:
    await desk.some(3)
    await desk.some(2, queue="video")
    await desk.hire("mail", "video")
    first, second = await desk.claim(count=2)
    await desk.succeed(first)
    await desk.kill(second)
    seen = await queries.overview(desk.store, minutes=3, clock=desk.clock)
    assert seen.counts[JobStatus.PENDING] == 3
    assert seen.counts[JobStatus.DONE] == seen.counts[JobStatus.DEAD] == 1
    assert [queue.name for queue in seen.queues] == ["mail", "video"]
    assert len(seen.minutes) == 3
    last = seen.minutes[-1]
    assert (last.enqueued, last.done, last.dead) == (5, 1, 1)
    assert last.mean_run_s == 1.0
    assert seen.minutes[0].done == 0
    assert seen.minutes[0].mean_run_s is None


async def test_A14_a_list_goes_on_by_cursor_and_never_repeats(desk: Desk) -> None:
    ids = await desk.some(25)
    seen: list[str] = []
    after = None
    pages = 0
    while True:
        page = await queries.jobs(desk.store, Filter(queue="mail"), limit=10, after=after)
        seen.extend(job.id for job in page.jobs)
        pages += 1
        await desk.some(1, queue="mail")
        after = page.next
        if after is None:
            break
    assert pages == 3
    assert seen == list(reversed(ids))


@pytest.mark.parametrize("limit", [0, -1, 1_001])
async def test_A14_a_page_has_a_bound(desk: Desk, limit: int) -> None:
    with pytest.raises(BadOption, match="limit"):
        await queries.jobs(desk.store, Filter(), limit=limit)


async def test_a_filtered_list_holds_only_what_matches(desk: Desk) -> None:
    await desk.some(2)
    (wanted,) = await desk.some(1, kind="render", queue="video", tags=("vip",))
    for chosen in (
        Filter(queue="video"),
        Filter(kind="render"),
        Filter(tag="vip"),
        Filter(queue="video", statuses=(JobStatus.PENDING,)),
    ):
        assert [job.id for job in (await queries.jobs(desk.store, chosen)).jobs] == [wanted]


async def test_counts_stop_at_their_cap(desk: Desk) -> None:
    await desk.some(12)
    few = await queries.count(desk.store, Filter(queue="mail"), cap=20)
    many = await queries.count(desk.store, Filter(queue="mail"), cap=10)
    assert (few.jobs, few.more) == (12, False)
    assert (many.jobs, many.more) == (10, True)


async def test_one_job_in_full(desk: Desk) -> None:
    payload = b'{"to":"a@b.c","password":"hunter2","nested":{"api_key":"k","n":[{"token":"t"}]}}'
    (job_id,) = await desk.add(
        NewJob(kind="send", queue="mail", payload=payload, tags=("vip",), max_attempts=2)
    )
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    await desk.fail(claimed, "the server said no")
    job = await queries.job(desk.store, job_id, clock=desk.clock)
    assert job.status is JobStatus.FAILED
    assert job.attempts == 1
    assert [error.message for error in job.errors] == ["the server said no"]
    assert job.tags == ("vip",)
    assert job.payload["to"] == "a@b.c"
    text = job.to_json().decode()
    for secret in ("hunter2", '"k"', '"t"'):
        assert secret not in text
    revealed = await queries.job(desk.store, job_id.lower(), reveal=True, clock=desk.clock)
    assert revealed.payload == json.loads(payload)


async def test_the_result_and_the_time_it_took(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    await desk.hire("mail")
    (claimed,) = await desk.claim()
    desk.clock.advance(3)
    running = await queries.job(desk.store, job_id, clock=desk.clock)
    assert (running.worker, running.ran_s) == ("web-worker-1-a", 3)
    await desk.succeed(claimed, b'{"sent":1}')
    job = await queries.job(desk.store, job_id, clock=desk.clock)
    assert (job.status, job.result, job.ran_s) == (JobStatus.DONE, {"sent": 1}, 3)
    assert job.worker is None


async def test_a_wrong_id_and_an_unknown_one_are_told_apart(desk: Desk) -> None:
    with pytest.raises(BadOption, match="is not a job id"):
        await queries.job(desk.store, "job-17")
    with pytest.raises(NotFound, match="there is no job"):
        await queries.job(desk.store, "01JABCDEFGHJKMNPQRSTVWXYZ0")


async def test_views_are_json_with_moments_as_text(desk: Desk) -> None:
    (job_id,) = await desk.some(1)
    document = json.loads((await queries.job(desk.store, job_id, clock=desk.clock)).to_json())
    assert document["id"] == job_id
    assert document["status"] == "pending"
    assert document["enqueued_at"].endswith("Z")
    overview = json.loads((await queries.overview(desk.store, clock=desk.clock)).to_json())
    assert overview["counts"]["pending"] == 1
