"""R3: an exception out of a signal handler, anywhere in a call of a pull queue.

A dequeue that was interrupted gives its job back unspent; what ends a job happens whole or not at
all, and saying it again is fine.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs import JobQueue
from forge_jobs.pull.job import Job
from tests.interrupting import Tracing, not_stuck, raised_at
from tests.postgres.schemas import Schemas

LONG = "10m"


@pytest.fixture(params=["sqlite", "postgres"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobQueue]:
    """On real time: leases are long, so that nothing comes back because one has ended."""
    if request.param == "sqlite":
        opened = JobQueue.open(f"sqlite:///{tmp_path / 'jobs.db'}")
        yield opened
        opened.close()
        return
    schemas: Schemas = request.getfixturevalue("schemas")
    schema = schemas.take()
    opened = JobQueue.open(schemas.url(schema))
    yield opened
    opened.close()
    schemas.give_back(schema)


def taken(queue: JobQueue, job_id: str) -> Job:
    """The job, dequeued; it may just be on its way back."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        job = queue.dequeue(lease=LONG)
        if job is not None:
            assert job.id == job_id
            return job
        time.sleep(0.002)
    pytest.fail(f"the job never came back: {queue.get(job_id)!r}")


def test_r3_an_interrupted_dequeue_spends_nothing(queue: JobQueue) -> None:
    job_id = queue.enqueue("t", {})
    found: list[Job | None] = []

    def call() -> None:
        found.append(None)
        found[-1] = queue.dequeue(lease=LONG)

    def check(tracing: Tracing) -> None:
        # Interrupted after its last step: the caller has the job.
        job = found[-1] or taken(queue, job_id)
        assert job.attempts == 1, f"an attempt was spent in {tracing.where}"
        queue.release(job)

    queue.release(taken(queue, job_id))
    count = missed = place = 0
    # Not every dequeue goes the same way: some look for lost jobs first.
    while missed < 5:
        tracing = raised_at(place, call)
        if tracing.raised:
            count += 1
            with not_stuck(tracing.where):
                check(tracing)
        else:
            missed += 1
            last = found[-1]
            assert last is not None
            queue.release(last)
        place += 1
    assert count > 30
    queue.complete(taken(queue, job_id))
    assert queue.counts() == dict.fromkeys(queue.counts(), 0) | {"completed": 1}


@pytest.mark.parametrize("end", ["complete", "fail", "heartbeat", "release", "enqueue"])
def test_r3_an_interrupted_finish_can_be_repeated(queue: JobQueue, end: str) -> None:
    held: list[Job] = []
    ended: list[str] = []

    def fresh() -> None:
        job_id = queue.enqueue("t", {}, max_attempts=3)
        while (job := queue.dequeue(lease=LONG)) is not None and job.id != job_id:
            queue.complete(job)
        assert job is not None
        held.append(job)

    def call() -> None:
        if end == "enqueue":
            ended.append(queue.enqueue("other", {}))
        elif end == "fail":
            queue.fail(held[-1], "no", permanent=True)
        else:
            getattr(queue, end)(held[-1])

    def again(tracing: Tracing) -> None:
        job = held[-1]
        if end == "release":
            queue.release(job)
            seen = queue.get(job.id)
            assert seen is not None
            assert (seen.status, seen.attempts) == ("pending", 0), tracing.where
        elif end == "fail":
            queue.fail(job, "no", permanent=True)
        else:
            # Said again, or for the first time.
            queue.complete(job)
        fresh()

    fresh()
    count = 0
    for place in range(0, 2_000, 2):
        tracing = raised_at(place, call)
        if not tracing.raised:
            break
        count += 1
        with not_stuck(tracing.where):
            again(tracing)
    assert count > 5
    counts = queue.counts()
    assert counts["failed"] == 0
    assert counts["dead"] == (count + 1 if end == "fail" else 0)


def test_r3_work_releases_what_has_not_started(queue: JobQueue) -> None:
    """Interrupted anywhere in the loop: each job ends once or comes back with nothing spent."""
    ran: list[str] = []

    def call() -> None:
        stop = threading.Event()

        def handler(job: Job) -> None:
            ran.append(job.id)
            if queue.counts()["pending"] == 0:
                stop.set()

        queue.work(handler, stop=stop, lease=LONG, poll="50ms")

    ids = {queue.enqueue("t", {"n": n}) for n in range(3)}
    for place in range(0, 4_000, 60):
        tracing = raised_at(place, call, KeyboardInterrupt)
        if not tracing.raised:
            break
        with not_stuck(tracing.where):
            until = time.monotonic() + 20
            while queue.counts()["running"] and time.monotonic() < until:
                time.sleep(0.005)
            for job_id in ids:
                job = queue.get(job_id)
                assert job is not None
                assert (job.status, job.attempts) in (("pending", 0), ("completed", 1)), (
                    tracing.where
                )
            if queue.counts()["pending"] == 0:
                ids = {queue.enqueue("t", {"n": n}) for n in range(3)}
