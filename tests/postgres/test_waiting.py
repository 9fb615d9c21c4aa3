"""The claim of a worker that has nothing to say tells it what any exchange would."""

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.select import Selection
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess


async def test_a_waiting_worker_hears_that_its_job_was_cancelled(
    store: PostgresStore, asked: list[str]
) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    [stored] = await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    first = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 5)]))
    assert [job.key for job in first.claims] == [stored.key]
    assert list(first.cancels) == []
    await store.jobs.cancel(Selection(ids=(stored.id,)), reason="enough", limit=1)
    asked.clear()
    second = await store.jobs.exchange(Exchange(owner=owner, number=2, want=[Want("q", 5)]))
    assert list(second.cancels) == [stored.key]
    assert all("claim_waiting" in query for query in asked)
