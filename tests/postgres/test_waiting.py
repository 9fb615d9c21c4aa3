"""``claim_waiting``, the exchange of a worker without writes, returns what any exchange would."""

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

from .server import PrivateServer


async def worker(store: PostgresStore) -> int:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    return await store.processes.register(me)


async def test_a_waiting_worker_gets_the_cancel_request_of_its_job(
    store: PostgresStore, asked: list[str]
) -> None:
    owner = await worker(store)
    [stored] = await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    first = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 5)]))
    assert [job.key for job in first.claims] == [stored.key]
    assert list(first.cancels) == []
    await store.jobs.act(BulkAction.CANCEL, Selection(ids=(stored.id,)), reason="enough", limit=1)
    asked.clear()
    second = await store.jobs.exchange(Exchange(owner=owner, number=2, want=[Want("q", 5)]))
    assert list(second.cancels) == [stored.key]
    assert all("claim_waiting" in query for query in asked)


async def test_a_job_without_a_slot_is_only_prefetched(store: PostgresStore) -> None:
    """One queue has no free slot and prefetches a job, the other has one."""
    owner = await worker(store)
    await store.jobs.enqueue([NewJob(kind="work", queue=queue) for queue in ("full", "free")])
    wants = [Want("full", 0, 1), Want("free", 5, 5)]
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=wants))
    assert {job.queue: job.started for job in answer.claims} == {"full": False, "free": True}


async def test_a_full_queue_blocks_no_other(store: PostgresStore) -> None:
    owner = await worker(store)
    [stored] = await store.jobs.enqueue([NewJob(kind="work", queue="free")])
    wants = [Want("full", 0, 1), Want("free", 5, 5)]
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=wants))
    assert [(job.key, job.started) for job in answer.claims] == [(stored.key, True)]


async def test_a_job_on_a_track_without_a_limit(store: PostgresStore) -> None:
    """Its task had a limit when the job was stored, or will have one."""
    owner = await worker(store)
    [stored] = await store.jobs.enqueue([NewJob(kind="work", queue="q", track=True)])
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 5)]))
    assert [job.key for job in answer.claims] == [stored.key]


async def test_a_job_that_is_marked_as_unchecked(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    """It was stored while another transaction held the lock of its lane."""
    owner = await worker(store)
    job = NewJob(kind="work", queue="q", lane="one", order=LaneOrder.SERIAL)
    [stored] = await store.jobs.enqueue([job])
    postgres.sql(f"UPDATE {schema}.jobs SET status = 'held', limit_bucket = 'new:lane:q/one'")
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 5)]))
    assert [job.key for job in answer.claims] == [stored.key]
