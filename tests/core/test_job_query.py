"""The query line: what it understands, what it refuses, and how it is written again."""

import pytest

from forge_jobs.core import job_query
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus

NOW = 1_000_000 * SECOND
HOUR = 3_600 * SECOND


def filter_of(text: str, statuses: tuple[JobStatus, ...] = ()) -> Filter:
    return job_query.parse(text).to_filter(NOW, statuses)


def test_every_name_becomes_its_condition() -> None:
    wanted = filter_of(
        'kind:send_mail to:ann@ queue:mail error:"read timeout" since:1h tag:x key:k status:failed'
    )
    assert wanted == Filter(
        kind="send_mail",
        queue="mail",
        statuses=(JobStatus.FAILED,),
        tag="x",
        dedupe_key="k",
        error="read timeout",
        arguments=(("to", "ann@"),),
        enqueued_from=NOW - HOUR,
    )


def test_times_are_about_the_end_of_jobs_that_have_ended() -> None:
    assert filter_of("status:dead,done since:2h until:1h") == Filter(
        statuses=(JobStatus.DEAD, JobStatus.DONE),
        finished_from=NOW - 2 * HOUR,
        finished_until=NOW - HOUR,
    )
    assert filter_of("since:1h", (JobStatus.DEAD,)).finished_from == NOW - HOUR
    assert filter_of("status:dead,failed since:1h").enqueued_from == NOW - HOUR


def test_a_time_without_a_zone_is_utc() -> None:
    with_zone = filter_of("since:2026-01-31T10:00+01:00")
    assert filter_of("since:2026-01-31T09:00") == with_zone


def test_words_arguments_and_quotes() -> None:
    assert filter_of("timeout").payload == "timeout"
    assert filter_of('"two words" customer.id:7 arg.kind:x').arguments == (
        ("customer.id", "7"),
        ("kind", "x"),
    )
    assert filter_of('to:"Ann Lee" note:"a:b"').arguments == (("to", "Ann Lee"), ("note", "a:b"))
    assert filter_of("status:in_progress").statuses == (JobStatus.RUNNING,)
    assert filter_of("  ") == Filter()


@pytest.mark.parametrize(
    "text",
    [
        "kind:send_mail queue:mail status:dead since:1h to:ann@",
        'error:"read timeout" arg.kind:x customer.id:7',
        "payload:x",
    ],
)
def test_a_query_is_written_as_it_was_read(text: str) -> None:
    query = job_query.parse(text)
    assert job_query.parse(str(query)) == query
    assert sorted(str(query).split(" ")) == sorted(text.split(" "))


@pytest.mark.parametrize(
    ("text", "named", "remedy"),
    [
        ("qeue:mail", "qeue:", "did you mean queue:"),
        ("kind:", "kind:", "kind:VALUE"),
        ("kind:a kind:b", "kind:", "keep one"),
        ("status:died", "status:died", "dead"),
        ("since:yesterday", "since:yesterday", "1h"),
        ('error:"open', '"', 'add a "'),
        ("arg.:x", "arg.", "customer.id:"),
        ("a b", "payload:", "keep one"),
        ("x:1 " * 9, "9 arguments", "at most 8"),
        ("x" * 2_001, "2,001", "2,000"),
    ],
)
def test_an_error_names_the_part_and_the_remedy(text: str, named: str, remedy: str) -> None:
    with pytest.raises(BadOption) as caught:
        job_query.parse(text)
    assert named in str(caught.value)
    assert remedy in str(caught.value)


def test_fields_of_a_form_join_the_line() -> None:
    query = job_query.parse("kind:a to:ann").with_fields({"queue": "mail", "kind": "a", "tag": ""})
    assert str(query) == "kind:a queue:mail to:ann"
    with pytest.raises(BadOption, match="exclude each other"):
        query.with_fields({"kind": "b"})
