"""Cron schedules: checks, which ticks fire when a process is late, and their jobs."""

from typing import Any

import pytest
from msgspec.structs import replace

from forge_jobs.core.errors import BadCron, BadDuration, BadName, BadOption
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import NewJob, Successor
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.schedule_ticks import Due, checked, due, first_tick, job_for, spec

HOUR = 3_600 * SECOND
JOB = NewJob(kind="report", queue="mail")


def every(expression: str = "* * * * * *", **schedule: Any) -> CronSpec:
    return CronSpec(name="report", expression=expression, kind="report", **schedule)


def seconds(*numbers: int) -> tuple[Instant, ...]:
    return tuple(number * SECOND for number in numbers)


def test_on_time_a_tick_fires_whatever_the_policy() -> None:
    for missed in ("skip", "once", "all"):
        found = due(every(missed=missed), 7 * SECOND, 7 * SECOND + 40)
        assert found == Due(seconds(7), 0, 7 * SECOND, 8 * SECOND)


def test_once_collapses_into_the_last_tick() -> None:
    assert due(every(missed="once"), 7 * SECOND, 20 * SECOND) == Due(
        seconds(20), 13, 20 * SECOND, 21 * SECOND
    )


def test_all_fires_every_tick_up_to_its_limit() -> None:
    found = due(every(missed="all"), 7 * SECOND, 10 * SECOND)
    assert found == Due(seconds(7, 8, 9, 10), 0, 10 * SECOND, 11 * SECOND)
    found = due(every(missed="all", missed_limit=2), 7 * SECOND, 10 * SECOND)
    assert found == Due(seconds(9, 10), 2, 10 * SECOND, 11 * SECOND)


def test_skip_drops_a_tick_that_is_more_than_a_minute_late() -> None:
    hourly = every("0 * * * *", missed="skip")
    assert due(hourly, HOUR, HOUR + 60 * SECOND).ticks == (HOUR,)
    found = due(hourly, HOUR, HOUR + 61 * SECOND)
    assert found == Due((), 1, HOUR, 2 * HOUR)
    assert due(every(missed="skip"), 7 * SECOND, 5_000 * SECOND).ticks == seconds(5_000)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_pause_of_years_is_decided_quickly(missed: str) -> None:
    year = 366 * 24 * HOUR
    found = due(every(missed=missed), SECOND, year)
    assert found.ticks[-1] == year
    assert len(found.ticks) == (100 if missed == "all" else 1)
    assert found.missed == 100
    rare = due(every("0 0 29 2 *", missed=missed), SECOND, 3 * year)
    assert len(rare.ticks) <= 2


def test_a_stored_tick_that_is_none_of_the_expression_fires_all_the_same() -> None:
    assert due(every("0 * * * *"), 5 * SECOND, 6 * SECOND).ticks == seconds(5)


def test_no_tick_fires_again_after_a_clock_was_set_back() -> None:
    hourly = every("0 * * * *")
    assert first_tick(hourly, 10 * HOUR) == 11 * HOUR
    assert first_tick(hourly, 10 * HOUR, last_at=13 * HOUR) == 14 * HOUR
    assert first_tick(hourly, 10 * HOUR, last_at=500_000 * HOUR) == 11 * HOUR, "a clock gone mad"


def test_a_spec_has_the_options_of_the_job() -> None:
    job = replace(JOB, payload=b'{"a":1}', priority=3, on_dead=Successor("tell", "mail"))
    schedule = spec(job, " 0  9 * * * ", tz="Europe/Paris", jitter="90s", max_attempts=2)
    assert (schedule.name, schedule.kind, schedule.queue, schedule.zone) == (
        "report",
        "report",
        None,
        "Europe/Paris",
    )
    assert (schedule.missed, schedule.overlap, schedule.jitter_s, schedule.max_attempts) == (
        "once",
        "skip",
        90,
        2,
    )
    made = job_for(schedule, queue="q", tick=at_nine())
    assert (made.kind, made.queue, made.payload) == ("report", "q", b'{"a":1}')
    assert (made.priority, made.on_dead) == (3, Successor("tell", "mail"))
    assert made.max_attempts == 2
    assert made.tags == ("cron:report", "tick:2026-01-01T09:00:00Z")
    assert made.dedupe_key == "cron:report"


def at_nine() -> Instant:
    return 1_767_258_000 * SECOND


def test_missed_all_allows_overlap_by_default() -> None:
    assert spec(JOB, "@daily", missed="all").overlap == "allow"
    assert spec(JOB, "@daily", missed="all", overlap="skip").overlap == "skip"
    assert job_for(spec(JOB, "@daily", overlap="allow"), queue="q").dedupe_key is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"expression": "x"}, BadCron, "has 1 fields"),
        ({"tz": "Mars"}, BadCron, "time zone 'Mars'"),
        ({"missed": "some"}, BadOption, "missed='some' is not known: use skip, once, all"),
        ({"overlap": "yes"}, BadOption, "overlap='yes' is not known: use skip, allow"),
        ({"missed_limit": 0}, BadOption, "missed_limit=0: use a whole number from 1 to 1,000"),
        ({"missed_limit": True}, BadOption, "missed_limit=True"),
        ({"max_attempts": -1}, BadOption, "max_attempts=-1"),
        ({"jitter": "2d"}, BadOption, "outside 0 to 24 h"),
        ({"jitter": "soon"}, BadDuration, "jitter='soon'"),
        ({"name": "a,b"}, BadName, "schedule 'a,b'"),
        ({"queue": "a b"}, BadName, "queue 'a b'"),
    ],
)
def test_bad_options_are_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    expression = options.pop("expression", "@daily")
    with pytest.raises(error) as refused:
        spec(JOB, expression, **options)
    assert message in str(refused.value)


def test_a_damaged_template_is_an_error() -> None:
    for template in (b"nonsense", b'{"priority":"high"}'):
        with pytest.raises(BadOption, match="template is damaged"):
            job_for(every(template=template), queue="q")


def test_a_template_of_a_later_version_is_read() -> None:
    assert job_for(every(template=b'{"colour":"red"}'), queue="q").kind == "report"
    assert checked(every()) == every()
