"""A job's time as spans, and how payloads differ."""

from typing import Any

from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import AttemptError, JobRecord
from forge_jobs.core.job_story import SpanKind, spans
from forge_jobs.core.json_diff import MAX_CHANGES, differences
from forge_jobs.core.status import JobStatus

START = 1_000 * SECOND


def record(status: JobStatus, **fields: Any) -> JobRecord:
    values: dict[str, Any] = {
        "key": 1, "id": "J", "kind": "send", "queue": "mail", "payload": b"{}", "priority": 0,
        "attempts": 1, "max_attempts": 5, "epoch": 1, "enqueued_at": START, "run_at": START,
    }  # fmt: skip
    return JobRecord(status=status, **{**values, **fields})


def told(job: JobRecord) -> list[tuple[str, int, int | None]]:
    """Each span with its begin and end, in seconds after the enqueue."""
    return [
        (
            one.kind.value,
            (one.began_at - START) // SECOND,
            None if one.ended_at is None else (one.ended_at - START) // SECOND,
        )
        for one in spans(job)
    ]


def failed(attempt: int, due: int, began: int, ended: int) -> AttemptError:
    return AttemptError(
        at=START + ended * SECOND,
        attempt=attempt,
        message="boom",
        started_at=START + began * SECOND,
        due_at=START + due * SECOND,
        owner=7,
    )


def test_two_attempts_and_the_back_off_between_them() -> None:
    job = record(
        JobStatus.DONE,
        attempts=2,
        errors=(failed(1, 10, 12, 15),),
        run_at=START + 25 * SECOND,
        started_at=START + 26 * SECOND,
        finished_at=START + 30 * SECOND,
        last_owner=9,
    )
    assert told(job) == [
        ("scheduled", 0, 10),
        ("waiting", 10, 12),
        ("attempt", 12, 15),
        ("back-off", 15, 25),
        ("waiting", 25, 26),
        ("attempt", 26, 30),
    ]
    first, last = (one for one in spans(job) if one.kind is SpanKind.ATTEMPT)
    assert (first.attempt, first.owner, first.error is not None) == (1, 7, True)
    assert (last.attempt, last.owner, last.error) == (2, 9, None)


def test_the_last_attempt_of_a_dead_job_is_told_once() -> None:
    job = record(
        JobStatus.DEAD,
        errors=(failed(1, 0, 2, 5),),
        started_at=START + 2 * SECOND,
        finished_at=START + 5 * SECOND,
    )
    assert told(job) == [("waiting", 0, 2), ("attempt", 2, 5)]


def test_what_lasts_has_no_end() -> None:
    assert told(record(JobStatus.HELD)) == [("held", 0, None)]
    assert told(record(JobStatus.PENDING, run_at=START + 4 * SECOND)) == [
        ("scheduled", 0, 4),
        ("waiting", 4, None),
    ]
    running = record(JobStatus.RUNNING, started_at=START + SECOND)
    assert told(running) == [("waiting", 0, 1), ("attempt", 1, None)]
    retry = record(
        JobStatus.FAILED,
        errors=(failed(1, 0, 1, 2),),
        started_at=START + SECOND,
        run_at=START + 60 * SECOND,
    )
    assert told(retry)[-1] == ("back-off", 2, None)
    assert spans(retry)[-1].until == START + 60 * SECOND


def test_a_cancelled_job_that_never_started_only_waited() -> None:
    job = record(JobStatus.CANCELLED, attempts=0, finished_at=START + 9 * SECOND)
    assert told(job) == [("waiting", 0, 9)]


def test_the_time_before_the_first_stored_attempt_of_a_workflow_was_no_idle_wait() -> None:
    job = record(
        JobStatus.RUNNING,
        has_steps=True,
        run_at=START + 50 * SECOND,
        started_at=START + 50 * SECOND,
    )
    assert told(job) == [("suspended", 0, 50), ("attempt", 50, None)]


def test_payloads_differ_field_by_field() -> None:
    was = {"to": "ann", "items": [1, {"n": 2}], "gone": None}
    now = {"to": "bob", "items": [1, {"n": 3}, 4], "new": {"a": 1}}
    seen = [(one.path, one.was, one.now) for one in differences(was, now)]
    assert seen == [
        ("to", "ann", "bob"),
        ("items[1].n", 2, 3),
        ("items[2]", None, 4),
        ("gone", None, None),
        ("new", None, {"a": 1}),
    ]
    assert differences({"a": 1}, {"a": 1}) == []
    assert [one.path for one in differences({"a": True}, {"a": 1})] == ["a"]
    assert differences([], "x")[0].path == "(whole)"
    assert len(differences([0] * 500, [1] * 500)) == MAX_CHANGES
