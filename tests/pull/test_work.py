"""The worker loop and the pool, in real time."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import BadDuration, BadOption, Dead, JobQueue, Retry, Snooze, Unavailable, Unknown
from forge_jobs.pull import Job, JobStatus, job_worker, job_worker_pool
from forge_jobs.testing.clock import MovableClock
from tests.postgres.schemas import Schemas

DEADLINE_S = 60.0


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobQueue]:
    opened = JobQueue.open(f"sqlite:///{tmp_path}/jobs.db", retry=Retry(delays=[0.1]))
    yield opened
    opened.close()


@contextmanager
def working(
    queue: JobQueue, handler: Callable[[Job], Any], *, workers: int = 1, **how: Any
) -> Iterator[threading.Event]:
    """Workers on a thread during a test; at its end ``stop`` is set and the thread must end."""
    stop = threading.Event()
    run = (
        (lambda: queue.work(handler, stop=stop, **how))
        if workers == 1
        else (lambda: queue.work_pool(workers, handler, stop=stop, **how))
    )
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def status(queue: JobQueue, job_id: str) -> str:
    job = queue.get(job_id)
    assert job is not None
    return job.status.value


# ------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"handler": None}, "handler=None cannot be called"),
        ({"types": "work"}, "types='work' is one string"),
        ({"stop": True}, "stop=True is no flag"),
        ({"lease": 0.1}, "lease=0.1 is too short"),
        ({"poll": "soon"}, "poll='soon' is not a duration"),
        ({"timeout": -1}, "timeout=-1 is not a duration"),
    ],
)
def test_configuration_errors_come_at_once(
    queue: JobQueue, how: dict[str, Any], match: str
) -> None:
    given = {"handler": print, "stop": threading.Event(), **how}
    handler, stop = given.pop("handler"), given.pop("stop")
    with pytest.raises((BadOption, BadDuration), match=f"^job_worker: {match}"):
        job_worker(stop, queue, handler, **given)
    with pytest.raises((BadOption, BadDuration), match=f"^job_worker_pool: {match}"):
        job_worker_pool(stop, queue, 2, handler, **given)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, 1_000])
def test_a_pool_needs_a_sensible_number_of_workers(queue: JobQueue, workers: Any) -> None:
    with pytest.raises(BadOption, match=f"^job_worker_pool: workers={workers!r} must be"):
        job_worker_pool(threading.Event(), queue, workers, print)


@pytest.mark.parametrize("poll", [0, -1, "0s"])
def test_a_poll_of_zero_or_less_is_the_default(queue: JobQueue, poll: Any) -> None:
    seen: list[Job] = []
    with working(queue, seen.append, poll=poll):
        queue.enqueue("work")
        until(lambda: seen)


# ------------------------------------------------------------------ the loop


def test_worker_processes_jobs_and_sleeps_only_when_nothing_was_due(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(200))
    with working(queue, lambda job: {"n": job.payload}, poll="1h"):
        until(lambda: queue.counts()["completed"] == 200)


def test_a_local_enqueue_wakes_a_sleeping_worker(queue: JobQueue) -> None:
    seen: list[Job] = []
    with working(queue, seen.append, poll="1h"):
        until(lambda: queue.access.run(lambda store: store.processes.all()))
        queue.enqueue("work")
        until(lambda: seen)


def test_a_job_that_comes_due_ends_the_sleep(queue: JobQueue) -> None:
    queue.enqueue("work", scheduled_at=datetime.now(UTC) + timedelta(seconds=0.3))
    with working(queue, lambda job: None, poll="1h"):
        until(lambda: queue.counts()["completed"] == 1)


def test_graceful_shutdown_finishes_the_current_job(queue: JobQueue) -> None:
    ids = [queue.enqueue("work") for _ in range(2)]
    began, go_on = threading.Event(), threading.Event()

    def slow(job: Job) -> str:
        began.set()
        assert go_on.wait(DEADLINE_S)
        return "finished"

    with working(queue, slow) as stop:
        assert began.wait(DEADLINE_S)
        stop.set()
        go_on.set()
    assert [status(queue, job_id) for job_id in ids] == ["completed", "pending"]


def test_stop_while_sleeping_returns_at_once(queue: JobQueue) -> None:
    with working(queue, print, poll="1h"):
        time.sleep(0.2)


def test_work_returns_how_many_jobs_it_handled(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(5))
    stop = threading.Event()

    def last(job: Job) -> None:
        if job.payload == 4:
            stop.set()

    assert queue.work(last, stop=stop) == 5


def test_only_the_types_asked_for_are_handled(queue: JobQueue) -> None:
    other, mine = queue.enqueue("other"), queue.enqueue("mine")
    with working(queue, lambda job: None, types=["mine"]):
        until(lambda: status(queue, mine) == "completed")
    assert status(queue, other) == "pending"


# ------------------------------------------------------------------ what a handler may do


def test_an_error_fails_the_job_with_type_and_message(queue: JobQueue) -> None:
    job_id = queue.enqueue("work", max_attempts=2)
    tries: list[int] = []

    def handler(job: Job) -> None:
        tries.append(job.attempts)
        raise KeyError("no such city")

    with working(queue, handler):
        until(lambda: status(queue, job_id) == "dead")
    dead = queue.get(job_id)
    assert dead is not None
    assert (tries, dead.error) == ([1, 2], "KeyError: 'no such city'")


def test_a_handler_may_choose_the_outcome(queue: JobQueue) -> None:
    ids = [queue.enqueue("work", name) for name in ("dead", "snooze", "set", "async")]
    seen: list[str] = []

    def handler(job: Job) -> Any:
        seen.append(job.payload)
        match job.payload:
            case "dead":
                raise Dead("never")
            case "snooze":
                return Snooze(0.1) if seen.count("snooze") == 1 else "woken"
            case "set":
                return {object()}
            case _:
                return later()

    async def later() -> str:
        await asyncio.sleep(0.01)
        return "awaited"

    with working(queue, handler):
        until(lambda: queue.counts()["pending"] + queue.counts()["running"] == 0)
    jobs = [job for job_id in ids if (job := queue.get(job_id)) is not None]
    assert [job.status.value for job in jobs] == ["dead", "completed", "dead", "completed"]
    assert jobs[0].error == "never"
    assert (jobs[1].result, jobs[1].attempts) == ("woken", 1)
    assert jobs[2].error is not None
    assert "result cannot be stored" in jobs[2].error
    assert jobs[3].result == "awaited"


def test_an_async_handler_that_takes_too_long_is_ended(queue: JobQueue) -> None:
    job_id = queue.enqueue("work", max_attempts=1)

    async def handler(job: Job) -> None:
        await asyncio.sleep(DEADLINE_S)

    with working(queue, handler, timeout=0.2):
        until(lambda: status(queue, job_id) == "dead")
    dead = queue.get(job_id)
    assert dead is not None
    assert dead.error == "timed out after 0.2 s"


def test_interrupted_mid_job_releases_it_without_costing_an_attempt(queue: JobQueue) -> None:
    job_id = queue.enqueue("work", max_attempts=1)

    def handler(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.work(handler)
    job = queue.get(job_id)
    assert job is not None
    assert (job.status, job.attempts) == (JobStatus.PENDING, 0)


def test_a_handler_that_ends_the_script_cannot_be_tried_for_ever(queue: JobQueue) -> None:
    job_id = queue.enqueue("work", max_attempts=1)

    def handler(job: Job) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        queue.work(handler)
    assert status(queue, job_id) == "dead"


def test_a_cancelled_job_is_asked_to_stop(queue: JobQueue) -> None:
    job_id = queue.enqueue("work")
    began = threading.Event()

    def handler(job: Job) -> None:
        began.set()
        until(lambda: job.stop_requested)
        raise RuntimeError("stopped half-way")

    with working(queue, handler, lease="3s"):
        assert began.wait(DEADLINE_S)
        queue.cancel(job_id)
        until(lambda: status(queue, job_id) == "cancelled")


def test_a_long_job_keeps_its_lease_by_itself(queue: JobQueue, tmp_path: Path) -> None:
    job_id = queue.enqueue("work")
    began, go_on = threading.Event(), threading.Event()

    def handler(job: Job) -> None:
        began.set()
        assert go_on.wait(DEADLINE_S)

    with JobQueue.open(f"sqlite:///{tmp_path}/jobs.db") as other:
        with working(queue, handler, lease="3s"):
            assert began.wait(DEADLINE_S)
            end = time.monotonic() + 4
            while time.monotonic() < end:
                assert other.dequeue() is None
                time.sleep(0.05)
            go_on.set()
        done = other.get(job_id)
        assert done is not None
        assert (done.status, done.attempts) == (JobStatus.COMPLETED, 1)


def test_a_blocking_job_past_its_timeout_loses_its_lease(queue: JobQueue, tmp_path: Path) -> None:
    queue.enqueue("work")
    began, go_on = threading.Event(), threading.Event()

    def handler(job: Job) -> None:
        began.set()
        assert go_on.wait(DEADLINE_S)

    with JobQueue.open(f"sqlite:///{tmp_path}/jobs.db") as other:
        with working(queue, handler, lease="1s", timeout=0.1):
            assert began.wait(DEADLINE_S)
            until(lambda: other.counts()["pending"] or _again(other))
            go_on.set()
        assert other.counts()["completed"] == 1


def _again(other: JobQueue) -> bool:
    job = other.dequeue()
    if job is None:
        return False
    assert job.attempts == 2
    other.complete(job)
    return True


# ------------------------------------------------------------------ a store that goes away


def test_dequeue_is_retried_while_the_store_is_unavailable(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue("work")
    claim_next, failures = queue.claim_next, [Unavailable("away")] * 2

    def flaky(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return claim_next(*given)

    monkeypatch.setattr(queue, "claim_next", flaky)
    with working(queue, lambda job: None, poll=0.1):
        until(lambda: queue.counts()["completed"] == 1)
    assert failures == []


@pytest.mark.parametrize("lost", [False, True], ids=["no effect", "answer lost"])
def test_complete_fails_after_success_and_the_handler_is_not_run_again(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    queue.enqueue_many("work", range(10))
    claimer: Any = queue._claimer
    exchange, failures, runs = claimer._exchange, [4, 4, 7], list[int]()

    def flaky(request: Any) -> Any:
        if request.finish and failures and len(runs) == failures[0]:
            failures.pop(0)
            if lost:
                exchange(request)
                raise Unknown("perhaps")
            raise Unavailable("away")
        return exchange(request)

    monkeypatch.setattr(claimer, "_exchange", flaky)
    with working(queue, lambda job: runs.append(job.payload)):
        until(lambda: queue.counts()["completed"] == 10)
    assert (sorted(runs), failures) == (list(range(10)), [])
    assert queue.counts()["running"] == 0


# ------------------------------------------------------------------ the pool


def test_a_pool_works_side_by_side(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(4))
    together = threading.Barrier(4)

    def handler(job: Job) -> None:
        together.wait(DEADLINE_S)

    with working(queue, handler, workers=4):
        until(lambda: queue.counts()["completed"] == 4)


def test_one_worker_that_breaks_stops_all_and_is_reported(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(3))

    def handler(job: Job) -> None:
        if job.payload == 1:
            raise SystemExit("the end")

    with pytest.raises(SystemExit, match="the end"):
        queue.work_pool(3, handler)


def test_a_pool_leaves_nothing_behind(queue: JobQueue) -> None:
    before = threading.active_count()
    queue.enqueue_many("work", range(20))
    with working(queue, lambda job: None, workers=3):
        until(lambda: queue.counts()["completed"] == 20)
    queue.deregister_idle()
    assert queue.access.run(lambda store: store.processes.all()) == []
    until(lambda: threading.active_count() <= before + 1)


def test_a_script_alone_rolls_up_its_counters(schemas: Schemas, clock: MovableClock) -> None:
    """On Postgres, where every transaction appends counter entries and no worker may run."""
    schema = schemas.take()
    with JobQueue.open(schemas.url(schema), clock=clock) as queue:
        queue.enqueue("a", {})
        job = queue.dequeue()
        assert job is not None
        queue.complete(job)
        assert schemas.count(f"{schema}.counter_entries") > 0
        clock.advance(60)
        end = time.monotonic() + 60
        while schemas.count(f"{schema}.counter_entries") > 0:
            assert time.monotonic() < end, "no roll-up"
            assert queue.dequeue() is None
            clock.advance(5)
            time.sleep(0.05)
        assert queue.counts()["completed"] == 1
    schemas.give_back(schema)
