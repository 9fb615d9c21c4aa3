"""R10: a cancel request is gone with its job, so that its owner's waiting claim stays the short one
of one statement."""

from collections.abc import Awaitable, Callable

import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import ClaimedJob, NewJob
from forge_jobs.core.outcome import Crashed, Dead, Done, Failed, Missing, Snooze, Throttled
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Retention
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process, claim_of, enqueue, record

from .server import PrivateServer

Way = Callable[[Process, ClaimedJob], Awaitable[object]]
SUCCESSOR = NewJob(kind="next", queue="other")


async def reaped(worker: Process, _job: ClaimedJob) -> object:
    await Process.register(worker.store, worker.clock, host_id="new", replaces=worker.host_id)
    return await worker.store.jobs.reap(crash_note="x", limit=10)


async def finished_twice(worker: Process, job: ClaimedJob) -> object:
    return await worker.send_finishes(worker.build_finish(job), worker.build_finish(job))


WAYS: dict[str, Way] = {
    "done": lambda worker, job: worker.finish(job, Done()),
    "done twice": finished_twice,
    "done with a successor": lambda worker, job: worker.finish(job, Done(), jobs=(SUCCESSOR,)),
    "failed": lambda worker, job: worker.finish(job, Failed("no")),
    "dead": lambda worker, job: worker.finish(job, Dead("no")),
    "crashed": lambda worker, job: worker.finish(job, Crashed("no")),
    "missing": lambda worker, job: worker.finish(job, Missing("no")),
    "snoozed": lambda worker, job: worker.finish(job, Snooze(60.0)),
    "throttled": lambda worker, job: worker.finish(job, Throttled(60.0)),
    "released": lambda worker, job: worker.exchange(release=[claim_of(job)]),
    "deregistered": lambda worker, _: worker.store.processes.deregister(worker.key),
    "reaped": reaped,
}


def requests(server: PrivateServer, schema: str) -> int:
    return int(server.sql(f"SELECT count(*) FROM {schema}.cancel_requests"))


@pytest.mark.parametrize("action", [BulkAction.CANCEL, BulkAction.DELETE])
@pytest.mark.parametrize("way", WAYS)
async def test_r10_a_cancel_request_ends_with_its_job(
    store: PostgresStore, schema: str, postgres: PrivateServer, way: str, action: BulkAction
) -> None:
    worker = await Process.register(store, MovableClock())
    job_id = (await enqueue(store)).id
    job = await worker.claim_one()
    await store.jobs.act(action, Selection(ids=(job_id,)), reason="why", limit=1)
    assert requests(postgres, schema) == 1
    await WAYS[way](worker, job)
    ended = (JobStatus.DONE, JobStatus.CANCELLED)
    assert (await record(store, job_id)).status in ended
    assert requests(postgres, schema) == 0


async def test_r10_requests_that_an_older_release_left_are_deleted(
    store: PostgresStore, schema: str, postgres: PrivateServer, asked: list[str]
) -> None:
    worker = await Process.register(store, MovableClock())
    await enqueue(store)
    running = await worker.claim_one()
    left = f"INSERT INTO {schema}.cancel_requests VALUES ({{}}, {worker.key}, 0, '')"
    postgres.sql(left.format(12_345), left.format(running.key))
    await store.jobs.purge(Retention(done_s=60.0, dead_s=60.0, cancelled_s=60.0), limit=10)
    assert requests(postgres, schema) == 1
    await worker.finish(running, Done())
    assert requests(postgres, schema) == 0
    asked.clear()
    assert await worker.claim() == []
    assert len(asked) == 1
    assert "claim_waiting" in asked[0]
