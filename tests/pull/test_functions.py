"""The nine functions: what each one does, and every edge case the original's notes list."""

import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import (
    BadDuration,
    BadName,
    BadOption,
    BadPayload,
    BadTime,
    Invalid,
    JobQueue,
    LeaseLost,
    NotFound,
    Refused,
    Retry,
    pull,
)
from forge_jobs.core.instant import to_datetime
from forge_jobs.pull import (
    JobStatus,
    job_cleanup,
    job_complete,
    job_dequeue,
    job_enqueue,
    job_fail,
    job_queue_create,
    job_status_summary,
    job_worker,
    job_worker_pool,
)
from forge_jobs.store.queues import QueueChange
from forge_jobs.testing.clock import MovableClock

from .conftest import OpenQueue

in_memory = pytest.mark.parametrize("url", ["memory"], indirect=True)
# What the stores are asked to do here is in their own conformance suite.
without_a_server = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
in_a_file = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def no_stop() -> threading.Event:
    return threading.Event()


CALLS: dict[str, Callable[[Any], object]] = {
    "job_enqueue": lambda queue: job_enqueue(queue, "work"),
    "job_dequeue": job_dequeue,
    "job_complete": lambda queue: job_complete(queue, "an id"),
    "job_fail": lambda queue: job_fail(queue, "an id", "x"),
    "job_worker": lambda queue: job_worker(no_stop(), queue, print),
    "job_worker_pool": lambda queue: job_worker_pool(no_stop(), queue, 2, print),
    "job_cleanup": lambda queue: job_cleanup(queue, "7d"),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_queue_missing(name: str) -> None:
    with pytest.raises(BadOption, match=f"^{name}: queue is missing"):
        CALLS[name](None)


def test_the_package_offers_the_nine_and_no_more() -> None:
    functions = [name for name in pull.__all__ if name.startswith("job_")]
    assert len(functions) == 9


# ------------------------------------------------------------------ job_queue_create


@pytest.mark.parametrize("db", [None, "", 7])
def test_create_db_missing(db: Any) -> None:
    with pytest.raises(BadOption, match=r"^job_queue_create: db is missing"):
        job_queue_create(db, "jobs")


BAD_NAMES = [
    "", "1jobs", "my jobs", "jobs;", 'jobs"; DROP TABLE users; --', "jobs'", "sqlite_jobs",
    "SQLITE_x", "größe", "j" * 64, "a.b", "a-b", "jobs\n", None, 7, "表",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_create_checks_the_name_before_any_sql(tmp_path: Path, name: Any) -> None:
    with pytest.raises(BadName, match=r"^job_queue_create: table .* is not allowed: use 1 to 63"):
        job_queue_create(f"sqlite:///{tmp_path}/jobs.db", name)
    assert list(tmp_path.iterdir()) == []


@in_a_file
@pytest.mark.parametrize("name", ["_", "select", "Jobs2", "j" * 63, "table"])
def test_create_takes_every_other_name(url: str, name: str) -> None:
    with job_queue_create(url, name) as queue:
        job_id = job_enqueue(queue, "work")
        job = job_dequeue(queue)
        assert job is not None
        assert (queue.name, job.id) == (name, job_id)


def test_create_twice_is_harmless(open_queue: OpenQueue) -> None:
    first = open_queue()
    job_id = first.enqueue("work")
    second = open_queue()
    job = second.dequeue()
    assert job is not None
    assert job.id == job_id
    second.complete(job)
    assert first.counts()["completed"] == 1


def test_create_in_memory_is_accepted() -> None:
    with job_queue_create("memory://", "jobs") as queue:
        assert job_dequeue(queue) is None


def test_several_queues_share_one_store(open_queue: OpenQueue) -> None:
    mail, video = open_queue("mail"), open_queue("video")
    beside = job_queue_create(mail, "beside")
    ids = {queue.name: queue.enqueue("work", queue.name) for queue in (mail, video, beside)}
    for queue in (mail, video, beside):
        job = queue.dequeue()
        assert job is not None
        assert (job.id, job.payload) == (ids[queue.name], queue.name)
        assert queue.dequeue() is None
        queue.complete(job)
    assert mail.cleanup(0) == 1
    assert (mail.summary(), video.counts()["completed"]) == ("no jobs", 1)
    with pytest.raises(NotFound):
        mail.complete(ids["video"])
    assert mail.get(ids["video"]) is None


def test_a_file_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("this is no database, it is a note about one" * 30)
    with pytest.raises(Exception, match="job_queue_create: "):
        job_queue_create(f"sqlite:///{tmp_path}/notes.db", "jobs")


# ------------------------------------------------------------------ job_enqueue


@in_memory
@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"type": ""}, BadOption, "type is empty"),
        ({"type": None}, BadOption, "type is empty"),
        ({"type": "two words"}, BadName, "type 'two words' is not allowed"),
        ({"payload": "{not json"}, BadPayload, "payload is not valid JSON"),
        ({"payload": {"a": float("nan")}}, BadPayload, "NaN"),
        ({"payload": [float("inf")]}, BadPayload, "NaN or an infinity"),
        ({"payload": "[1e999]"}, BadPayload, "payload"),
        ({"payload": {"a": object()}}, BadPayload, "payload cannot be stored as JSON"),
        ({"max_attempts": 0}, BadOption, "max_attempts=0"),
        ({"max_attempts": -1}, BadOption, "max_attempts=-1"),
        ({"priority": 1.5}, BadOption, "priority=1.5"),
        ({"scheduled_at": datetime(2030, 1, 1)}, BadTime, "scheduled_at=.* has no time zone"),
        ({"scheduled_at": "tomorrow"}, BadOption, "scheduled_at='tomorrow' is no datetime"),
    ],
)
def test_enqueue_refuses(
    queue: JobQueue, given: dict[str, Any], error: type[Invalid], match: str
) -> None:
    with pytest.raises(error, match=f"^job_enqueue: .*{match}"):
        job_enqueue(queue, **{"type": "work", **given})
    assert queue.summary() == "no jobs"


def test_enqueue_defaults(queue: JobQueue, clock: MovableClock) -> None:
    job = queue.get(job_enqueue(queue, "work"))
    assert job is not None
    assert (job.payload, job.priority, job.attempts, job.max_attempts) == ({}, 0, 0, 3)
    assert job.status is JobStatus.PENDING
    assert job.created_at == job.scheduled_at == to_datetime(clock.now())
    assert (job.started_at, job.completed_at, job.result, job.error) == (None, None, None, None)


@without_a_server
def test_enqueue_text_is_json_and_a_value_is_a_value(queue: JobQueue) -> None:
    ids = [
        job_enqueue(queue, "work", '{"a": [1, "ü"]}'),
        job_enqueue(queue, "work", {"a": [1, "ü"]}),
        queue.enqueue("work", "just text"),
    ]
    payloads = [job.payload for job_id in ids if (job := queue.get(job_id)) is not None]
    assert payloads == [{"a": [1, "ü"]}, {"a": [1, "ü"]}, "just text"]


def test_enqueue_in_the_past_is_due_now_and_later_is_not(
    queue: JobQueue, clock: MovableClock
) -> None:
    now = to_datetime(clock.now())
    late = queue.enqueue("work", scheduled_at=now + timedelta(minutes=5))
    past = queue.enqueue("work", scheduled_at=now - timedelta(days=3))
    first = queue.dequeue()
    assert first is not None
    assert first.id == past
    assert queue.dequeue() is None
    stored = queue.get(late)
    assert stored is not None
    assert stored.status is JobStatus.PENDING
    clock.advance(300)
    second = queue.dequeue()
    assert second is not None
    assert second.id == late


@without_a_server
def test_enqueue_with_a_key_returns_the_living_job(queue: JobQueue) -> None:
    first = job_enqueue(queue, "work", {"n": 1}, dedupe_key="a")
    assert job_enqueue(queue, "work", {"n": 2}, dedupe_key="a") == first
    job = queue.dequeue()
    assert job is not None
    queue.complete(job)
    assert job_enqueue(queue, "work", {"n": 3}, dedupe_key="a") != first


@without_a_server
def test_enqueue_many_at_once_keeps_the_order(queue: JobQueue) -> None:
    ids = queue.enqueue_many("work", [{"n": n} for n in range(20)], max_attempts=7)
    assert ids == sorted(ids)
    got = [queue.dequeue() for _ in range(20)]
    assert [job.payload["n"] for job in got if job is not None] == list(range(20))
    assert {job.max_attempts for job in got if job is not None} == {7}
    assert queue.enqueue_many("work", []) == []


@in_a_file
def test_enqueue_joins_the_callers_transaction(queue: JobQueue, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    for end, expected in (("ROLLBACK", 0), ("COMMIT", 1)):
        connection.execute("BEGIN IMMEDIATE")
        queue.enqueue("work", tx=connection)
        connection.execute(end)
        assert queue.counts()["pending"] == expected
    connection.close()


# ------------------------------------------------------------------ job_dequeue


def test_dequeue_nothing_due_is_none(queue: JobQueue) -> None:
    assert job_dequeue(queue) is None
    job_enqueue(queue, "work")
    assert job_dequeue(queue, ["unknown"]) is None
    for types in ([], None):
        job = job_dequeue(queue, types)
        assert job is not None
        queue.release(job)


def test_dequeue_order_is_priority_lower_first_then_time_then_age(
    queue: JobQueue, clock: MovableClock
) -> None:
    now = to_datetime(clock.now())
    given: dict[str, dict[str, Any]] = {
        "last": {"priority": 5},
        "third": {},
        "second": {"scheduled_at": now - timedelta(seconds=1)},
        "fourth": {},
        "first": {"priority": -5},
    }
    for name, options in given.items():
        queue.enqueue("work", name, **options)
    order = [job.payload for _ in given if (job := queue.dequeue()) is not None]
    assert order == ["first", "second", "third", "fourth", "last"]


def test_dequeue_by_types_passes_over_the_others(queue: JobQueue) -> None:
    for name in ("a", "b", "c", "a", "b", "c"):
        queue.enqueue(name)
    got = [job.type for _ in range(6) if (job := queue.dequeue(["c", "a"])) is not None]
    assert got == ["a", "c", "a", "c"]
    assert queue.counts()["pending"] == 2


@in_memory
@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"types": "work"}, BadOption, "types='work' is one string"),
        ({"types": [""]}, BadOption, "type is empty"),
        ({"lease": "soon"}, BadDuration, "lease='soon'"),
        ({"lease": 0.5}, BadOption, "lease=0.5 is too short"),
        ({"lease": -1}, BadDuration, "lease=-1"),
    ],
)
def test_dequeue_refuses(
    queue: JobQueue, given: dict[str, Any], error: type[Invalid], match: str
) -> None:
    with pytest.raises(error, match=f"^job_dequeue: .*{match}"):
        job_dequeue(queue, **given)


def test_two_callers_never_get_the_same_job(open_queue: OpenQueue) -> None:
    queues = [open_queue(), open_queue()]
    queues[0].enqueue_many("work", range(60))
    got: list[str] = []

    def drain(queue: JobQueue) -> None:
        while (job := queue.dequeue()) is not None:
            got.append(job.id)
            queue.complete(job)

    threads = [threading.Thread(target=drain, args=(queues[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 60
    assert queues[0].counts()["completed"] == 60


@without_a_server
def test_a_paused_queue_gives_nothing(queue: JobQueue) -> None:
    queue.enqueue("work")
    pause = QueueChange(paused=True)
    queue.access.run(lambda store: store.queues.change(queue.name, pause))
    assert queue.dequeue() is None


@without_a_server
def test_a_clock_that_was_set_back_stops_nothing(queue: JobQueue, clock: MovableClock) -> None:
    queue.enqueue_many("work", range(3))
    clock.jump(-3_600)
    while (job := queue.dequeue()) is not None:
        queue.complete(job)
    assert queue.counts()["completed"] == 3


# ------------------------------------------------------------------ job_complete and job_fail


@pytest.mark.parametrize("end", [job_complete, job_fail], ids=lambda end: end.__name__)
def test_finishes_raise_different_errors(queue: JobQueue, open_queue: OpenQueue, end: Any) -> None:
    name = end.__name__
    with pytest.raises(BadOption, match=f"^{name}: job id '' is empty"):
        end(queue, "")
    with pytest.raises(NotFound, match=f"^{name}: queue 'jobs' has no job"):
        end(queue, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    job_id = queue.enqueue("work")
    with pytest.raises(Refused, match=f"^{name}: job .* is pending, not running"):
        end(queue, job_id)
    elsewhere = open_queue()
    assert elsewhere.dequeue() is not None
    with pytest.raises(LeaseLost, match=f"^{name}: job .* was not dequeued here"):
        end(queue, job_id)


@without_a_server
def test_complete_keeps_the_result(queue: JobQueue) -> None:
    queue.enqueue("work")
    job = queue.dequeue()
    assert job is not None
    with pytest.raises(BadPayload, match=r"^job_complete: result cannot be stored"):
        job_complete(queue, job, {1, object()})
    job_complete(queue, job, {"size": [3, 4]})
    done = queue.get(job.id)
    assert done is not None
    assert (done.result, done.error, done.attempts) == ({"size": [3, 4]}, None, 1)


def test_fail_backs_off_counts_at_the_claim_and_ends_dead(
    queue: JobQueue, clock: MovableClock
) -> None:
    job_id = queue.enqueue("work", max_attempts=3)
    waits: list[float] = []
    for attempt in (1, 2, 3):
        job = queue.dequeue()
        assert job is not None
        assert job.attempts == attempt
        job_fail(queue, job, "")
        after = queue.get(job_id)
        assert after is not None
        assert (after.attempts, after.error) == (attempt, "")
        waits.append((after.scheduled_at - to_datetime(clock.now())).total_seconds())
        clock.advance(100)
    assert after.status is JobStatus.DEAD
    assert 13 <= waits[0] <= 17
    assert 27 <= waits[1] <= 33
    assert queue.dequeue() is None


@without_a_server
def test_fail_cuts_a_long_message_and_takes_an_exception(queue: JobQueue) -> None:
    job_id = queue.enqueue("work", max_attempts=1)
    job = queue.dequeue()
    assert job is not None
    job_fail(queue, job, ValueError("x" * 50_000))
    dead = queue.get(job_id)
    assert dead is not None
    assert dead.error is not None
    assert dead.error.startswith("ValueError: xxx")
    assert len(dead.error) <= 2_000


@without_a_server
def test_the_wait_after_a_failure_is_the_callers_or_the_operators(
    open_queue: OpenQueue, clock: MovableClock
) -> None:
    def wait_s(queue: JobQueue) -> float:
        job_id = queue.enqueue("work")
        job = queue.dequeue()
        assert job is not None
        queue.fail(job, "x")
        failed = queue.get(job_id)
        assert failed is not None
        return (failed.scheduled_at - to_datetime(clock.now())).total_seconds()

    assert wait_s(open_queue(retry=Retry(delays=["7s"]))) == 7.0
    plain = open_queue("plain")
    assert 13 <= wait_s(plain) <= 17
    change = QueueChange(backoff_enabled=True, backoff_base_s=100.0)
    plain.access.run(lambda store: store.queues.change("plain", change))
    assert plain.dequeue() is None
    assert 90 <= wait_s(plain) <= 110


def test_a_job_comes_from_the_store_as_mission_control_sees_it(queue: JobQueue) -> None:
    job_id = queue.enqueue("work", {"n": 1})
    assert queue.dequeue(lease="1h") is not None
    record = queue.access.run(lambda store: store.jobs.get(job_id))
    assert record is not None
    assert (record.queue, record.kind, record.status.value) == ("jobs", "work", "running")
    (worker,) = queue.access.run(lambda store: store.processes.all())
    assert (worker.key, worker.queues, worker.label[:9]) == (record.owner, ("jobs",), "pull-jobs")
    settings = queue.access.run(lambda store: store.queues.get("jobs"))
    assert settings is not None
    assert (settings.retain_done_s, settings.retain_dead_s) == (None, None)


# ------------------------------------------------------------------ leases


def test_a_heartbeat_renews_the_lease(queue: JobQueue, clock: MovableClock) -> None:
    queue.enqueue("work")
    job = queue.dequeue(lease="1m")
    assert job is not None
    for _ in range(5):
        clock.advance(50)
        assert queue.heartbeat(job) is True
        assert queue.dequeue() is None
    queue.complete(job.id)


def test_each_job_has_a_lease_of_its_own(queue: JobQueue, clock: MovableClock) -> None:
    queue.enqueue_many("work", range(3))
    short, long = queue.dequeue(lease="10s"), queue.dequeue(lease="1h")
    assert short is not None
    assert long is not None
    clock.advance(12)
    again = queue.dequeue(lease="10s")
    assert again is not None
    assert (again.id, again.attempts) == (short.id, 2)
    queue.complete(long)
    with pytest.raises(LeaseLost):
        queue.complete(short)


def test_a_lease_holds_at_least_as_long_as_asked_for(queue: JobQueue, clock: MovableClock) -> None:
    queue.enqueue_many("work", range(2))
    first = queue.dequeue(lease="100s")
    assert first is not None
    clock.advance(9)
    queue.complete(first)
    second = queue.dequeue(lease="100s")
    assert second is not None
    clock.advance(99)
    assert queue.dequeue() is None
    assert queue.get(second.id).status is JobStatus.RUNNING  # type: ignore[union-attr]


def test_a_script_that_works_one_by_one_registers_once(
    queue: JobQueue, clock: MovableClock
) -> None:
    queue.enqueue_many("work", range(10))
    owners: set[int | None] = set()
    while (job := queue.dequeue(lease="1m")) is not None:
        owners.add(job.owner)
        clock.advance(20)
        queue.complete(job)
    assert len(owners) == 1
    queue.deregister_idle()
    assert queue.access.run(lambda store: store.processes.all()) == []


@in_a_file
def test_a_script_may_hold_very_many_jobs(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(150))
    jobs = [job for _ in range(150) if (job := queue.dequeue()) is not None]
    assert len(queue.access.run(lambda store: store.processes.all())) == 64
    for job in jobs:
        assert queue.heartbeat(job)
        queue.complete(job)
    assert queue.counts()["completed"] == 150
    queue.deregister_idle()
    assert queue.access.run(lambda store: store.processes.all()) == []


def test_a_second_finish_does_not_touch_the_next_claim(
    queue: JobQueue, clock: MovableClock
) -> None:
    queue.enqueue_many("work", range(3))
    first = queue.dequeue()
    assert first is not None
    queue.complete(first)
    second = queue.dequeue()
    assert second is not None
    assert second.owner == first.owner
    with pytest.raises(Refused):
        queue.complete(first)
    third = queue.dequeue()
    assert third is not None
    assert third.owner != second.owner


@without_a_server
def test_a_released_job_costs_no_attempt(queue: JobQueue) -> None:
    queue.enqueue("work")
    for _ in range(5):
        job = queue.dequeue()
        assert job is not None
        assert job.attempts == 1
        queue.release(job)
    assert queue.counts()["pending"] == 1


# ------------------------------------------------------------------ job_status_summary


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "no jobs"),
        ({"pending": 0}, "no jobs"),
        (
            {"dead": 1, "completed": 2, "failed": 3, "running": 4, "pending": 5},
            "pending 5, running 4, failed 3, completed 2, dead 1 (total 15)",
        ),
        (
            {"parked": 2, "completed": 1, "cancelled": 3},
            "pending 0, running 0, failed 0, completed 1, dead 0, parked 2, cancelled 3 (total 6)",
        ),
    ],
)
def test_summary_is_pure(counts: dict[str, int], text: str) -> None:
    assert job_status_summary(counts) == text


def test_counts_are_counted_by_the_store(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(4))
    done, failed, _running = [queue.dequeue() for _ in range(3)]
    assert done is not None
    assert failed is not None
    queue.complete(done)
    queue.fail(failed, "x")
    assert queue.counts() == {"pending": 1, "running": 1, "failed": 1, "completed": 1, "dead": 0}
    assert queue.summary() == "pending 1, running 1, failed 1, completed 1, dead 0 (total 4)"


# ------------------------------------------------------------------ job_cleanup


@in_memory
def test_cleanup_negative_is_an_error(queue: JobQueue) -> None:
    with pytest.raises(BadDuration, match=r"^job_cleanup: older_than=-1 "):
        job_cleanup(queue, -1)


def test_cleanup_never_deletes_a_job_that_still_has_a_retry(
    queue: JobQueue, clock: MovableClock
) -> None:
    retried = queue.enqueue("work", max_attempts=5)
    while (job := queue.dequeue()) is not None:
        queue.fail(job, "x")
    lost = queue.enqueue("work")
    assert queue.dequeue(lease="10s") is not None
    clock.advance(30 * 86_400)
    assert job_cleanup(queue, 0) == 0
    assert {queue.get(job_id).status.value for job_id in (retried, lost)} <= {  # type: ignore[union-attr]
        "failed", "running",
    }  # fmt: skip
    again = [queue.dequeue(), queue.dequeue()]
    assert {job.id for job in again if job is not None} == {retried, lost}


def test_cleanup_goes_by_when_the_job_ended(queue: JobQueue, clock: MovableClock) -> None:
    now = to_datetime(clock.now())
    queue.enqueue("work", scheduled_at=now + timedelta(days=30))
    clock.advance(30 * 86_400)
    job = queue.dequeue()
    assert job is not None
    queue.complete(job)
    assert job_cleanup(queue, "7d") == 0
    clock.advance(7 * 86_400)
    assert job_cleanup(queue, "7d") == 1


@in_a_file
def test_cleanup_works_in_batches(queue: JobQueue) -> None:
    queue.enqueue_many("work", range(1_200))
    queue.access.run(_cancel_all)
    queue.enqueue("work")
    assert job_cleanup(queue, 0) == 1_200
    assert queue.counts()["pending"] == 1


async def _cancel_all(store: Any) -> None:
    from forge_jobs.core.selection import BulkAction, Filter, Selection

    await store.jobs.act(
        BulkAction.CANCEL, Selection(filter=Filter(queue="jobs")), reason="x", limit=2_000
    )


@without_a_server
def test_times_are_aware_and_in_utc(queue: JobQueue) -> None:
    queue.enqueue("work")
    job = queue.dequeue()
    assert job is not None
    times = (job.created_at, job.scheduled_at, job.started_at, job.lease_until)
    assert {time.tzinfo for time in times if time is not None} == {UTC}
