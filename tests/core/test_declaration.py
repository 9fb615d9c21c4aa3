"""Given and declared options, and the record that workers publish."""

from typing import Any

import msgspec
import pytest

from forge_jobs.core.declaration import (
    FORMER_S,
    ArgumentNames,
    Declaration,
    completed,
    decode,
    encode,
    undeclared,
    with_fields,
)
from forge_jobs.core.errors import BadArguments, BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob, LaneOrder, NewJob, Successor

TASK = NewJob(
    kind="charge",
    queue="",
    priority=7,
    max_attempts=1,
    timeout_s=30.0,
    tags=("billing",),
    lane="ledger",
    order=LaneOrder.SERIAL,
    on_dead=Successor("tell", "desk", options={"a": 1}),
    options={"soft_timeout_s": 20.0},
)
TAKES = ArgumentNames(("account", "amount"), ("account",))
DECLARED = Declaration(template=TASK, payload_limit=99, arguments=TAKES)


def stored(declaration: Declaration, known: bytes | None = None, now: int = 0) -> bytes:
    record = encode(declaration, known, now)
    assert record is not None
    return record


def test_u2_a_record_comes_back() -> None:
    assert decode("charge", stored(DECLARED), 0) == DECLARED
    plain = Declaration(template=NewJob(kind="k", queue=""))
    assert decode("k", stored(plain), 0) == plain


def test_u2_nothing_is_written_when_nothing_changes() -> None:
    assert encode(DECLARED, stored(DECLARED), 5) is None


def test_u2_fields_of_a_newer_release_are_ignored_and_kept() -> None:
    newer = msgspec.json.decode(stored(DECLARED))
    newer["format"] = 2
    newer["colour"] = "red"
    newer["job"]["retry_budget"] = 3
    record = msgspec.json.encode(newer)
    assert decode("charge", record, 0) == DECLARED
    changed = stored(msgspec.structs.replace(DECLARED, payload_limit=7), record)
    kept: dict[str, Any] = msgspec.json.decode(changed)
    assert (kept["colour"], kept["job"]["retry_budget"], kept["payload_limit"]) == ("red", 3, 7)


@pytest.mark.parametrize(
    "record", [b"", b"[]", b"{}", b'{"job": 3}', b'{"job": {"max_attempts": "many"}}', b"\xff"]
)
def test_u2_a_record_that_cannot_be_read_is_none(record: bytes) -> None:
    assert decode("charge", record, 0) is None
    assert decode("charge", stored(DECLARED, record), 0) == DECLARED


def test_u14_arguments_of_another_version_fit_for_a_day() -> None:
    before = msgspec.structs.replace(DECLARED, arguments=ArgumentNames(("old",), ("old",)))
    record = stored(DECLARED, stored(before), now=1_000)
    both = decode("charge", record, 1_000)
    assert both is not None
    both.check_arguments({"account": "a"}, remedy="R")
    both.check_arguments({"old": 1}, remedy="R")
    later = decode("charge", record, 1_000 + round(FORMER_S) * SECOND)
    assert later is not None
    with pytest.raises(BadArguments, match="unexpected argument 'old'"):
        later.check_arguments({"old": 1}, remedy="R")
    # An old worker that starts again does not forget the new one.
    again = decode("charge", stored(before, record, 2_000), 2_000)
    assert again is not None
    again.check_arguments({"account": "a"}, remedy="R")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({}, "missing argument 'account'. It takes (account, amount = ...). To store"),
        ({"acount": 1}, "unexpected argument 'acount', did you mean 'account'?"),
        ([1], "the payload must be an object with its arguments by name"),
        (None, "the payload must be an object"),
    ],
)
def test_u14_wrong_names_are_said(payload: object, said: str) -> None:
    with pytest.raises(BadArguments) as caught:
        DECLARED.check_arguments(payload, remedy="R")
    assert said in str(caught.value)


def test_u14_extras_and_handlers_without_a_signature_take_all() -> None:
    ArgumentNames((), (), extras=True).fit({"any": 1})
    Declaration(template=TASK, arguments=ArgumentNames(extras=True)).check_arguments(
        {"any": 1}, remedy="R"
    )
    Declaration(template=TASK).check_arguments([1, 2], remedy="R")


def test_u2_the_caller_comes_first() -> None:
    job = with_fields(TASK, {"priority": 0, "tags": (), "options": {"other": 1}})
    assert (job.priority, job.tags, job.max_attempts) == (0, (), 1)
    assert job.options == {"soft_timeout_s": 20.0, "other": 1}
    assert with_fields(TASK, {}) is TASK


def test_u2_no_timeout_is_said_where_the_task_has_one() -> None:
    assert with_fields(TASK, {"timeout_s": None}).options == {
        "soft_timeout_s": 20.0,
        "no_timeout": True,
    }
    assert with_fields(NewJob(kind="k", queue="q"), {"timeout_s": None}).options is None


def test_u2_a_soft_timeout_is_compared_with_the_tasks_timeout() -> None:
    with pytest.raises(BadOption, match="soft_timeout= \\(40 s\\) must be shorter"):
        with_fields(TASK, {"options": {"soft_timeout_s": 40.0}})
    with_fields(TASK, {"options": {"soft_timeout_s": 40.0}, "timeout_s": 50.0})


@pytest.mark.parametrize(
    ("fields", "soft_s"),
    [
        ({"timeout_s": 5.0}, 4.5),
        ({"timeout_s": 20.0}, 18.0),
        ({"timeout_s": 21.0}, 20.0),
        ({"timeout_s": None}, 20.0),
        ({"timeout_s": 5.0, "options": {"other": 1}}, 4.5),
        ({"timeout_s": 5.0, "options": {"soft_timeout_s": 3.0}}, 3.0),
        ({"timeout_s": 5.0, "options": {"soft_timeout_s": None}}, None),
    ],
)
def test_u2_a_shorter_timeout_leaves_time_after_the_tasks_soft_timeout(
    fields: dict[str, Any], soft_s: float | None
) -> None:
    """The handler was stopped before its soft timeout, without the time to wrap up."""
    job = with_fields(TASK, fields)
    assert job.timeout_s == fields["timeout_s"]
    assert (job.options or {})["soft_timeout_s"] == soft_s


def claimed(job: NewJob) -> ClaimedJob:
    return ClaimedJob(
        1, 1, job.kind, job.queue, job.payload, 1, job.max_attempts, 0, 0,
        priority=job.priority, timeout_s=job.timeout_s, tags=job.tags, options=job.options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"max_attempts": 5}, {"max_attempts": 5}),
        ({"tags": ("x",)}, {"tags": ("x",)}),
        ({"order": LaneOrder.NONE}, {"lane": None, "order": LaneOrder.NONE}),
        # Below the task's timeout by what the producer could not know.
        ({"options": {"soft_timeout_s": 60.0}}, {"options": {"soft_timeout_s": 60.0}}),
        ({"timeout_s": 5.0}, {"timeout_s": 5.0, "options": {"soft_timeout_s": 4.5}}),
    ],
)
def test_u2_a_job_is_completed(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    first = NewJob(kind="charge", queue="q", payload=b'{"a":1}')
    made = completed(TASK, claimed(undeclared(with_fields(first, fields), fields)))
    wanted = msgspec.structs.replace(TASK, queue="q", payload=b'{"a":1}', **expected)
    assert made == wanted


def test_u2_what_a_hook_or_schedule_added_stays() -> None:
    first = undeclared(NewJob(kind="charge", queue="q", tags=("cron:x",), priority=3))
    made = completed(TASK, claimed(first))
    assert (made.tags, made.priority) == (("billing", "cron:x"), 3)


@pytest.mark.parametrize("mark", [None, 7, "max_attempts", {"max_attempts": 1}, [3, "tags"]])
def test_u2_a_damaged_mark_is_read_as_empty(mark: object) -> None:
    job = claimed(NewJob(kind="charge", queue="q", options={"undeclared": mark}))
    assert completed(TASK, job).max_attempts == 1
