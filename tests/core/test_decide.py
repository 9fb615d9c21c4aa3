"""``decide``: pure, total, and every finish is a legal transition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from forge_jobs.core.decide import (
    DEFAULT_BUDGETS,
    Budgets,
    Finish,
    decide,
    done,
    final_status,
    reaped,
)
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob, NewJob
from forge_jobs.core.outcome import (
    AnyOutcome,
    Crashed,
    Dead,
    Done,
    Failed,
    Missing,
    Snooze,
    Stopped,
    Throttled,
)
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import TRANSITIONS, Event, JobStatus, targets

NOW = 1_700_000_000 * SECOND
JOB = ClaimedJob(7, 3, "send", "mail", b"{}", 1, 5, NOW, NOW)
OUTCOMES: list[AnyOutcome] = [
    Done(1), Failed("f"), Dead("d"), Throttled(30), Throttled(), Snooze(9), Crashed("c"),
    Missing(), Stopped(),
]  # fmt: skip


def test_done_carries_result_and_jobs() -> None:
    following = (NewJob(kind="next", queue="mail"),)
    finish = decide(JOB, Done(), now=NOW, result=b"1", jobs=following, ran_s=0.5)
    assert finish == done(JOB, result=b"1", jobs=following, ran_s=0.5)
    assert finish == Finish(
        7,
        3,
        Event.DONE,
        JobStatus.DONE,
        "mail",
        "send",
        0.0,
        b"1",
        None,
        None,
        following,
        0.5,
        enqueued_at=NOW,
    )


def test_a_failure_carries_neither_result_nor_jobs() -> None:
    jobs = (NewJob(kind="next", queue="mail"),)
    finish = decide(JOB, Failed("x"), now=NOW, result=b"1", jobs=jobs)
    assert (finish.result, finish.jobs) == (None, ())


@pytest.mark.parametrize(("attempts", "delay_s"), [(1, 15), (2, 30), (3, 60), (4, 120)])
def test_A27_the_first_retry_waits_the_base(attempts: int, delay_s: float) -> None:
    finish = decide(structs.replace(JOB, attempts=attempts), Failed("boom"), now=NOW)
    assert (finish.status, finish.delay_s, finish.error) == (JobStatus.FAILED, delay_s, "boom")


def test_a_failure_of_the_last_attempt_is_dead() -> None:
    finish = decide(structs.replace(JOB, attempts=5), Failed("boom"), now=NOW)
    assert (finish.event, finish.status) == (Event.FAIL, JobStatus.DEAD)


def test_dead_is_dead_at_once() -> None:
    finish = decide(JOB, Dead("no"), now=NOW)
    assert (finish.event, finish.status, finish.error) == (Event.DIE, JobStatus.DEAD, "no")


@pytest.mark.parametrize(("crashes", "status"), [(0, "failed"), (1, "failed"), (2, "dead")])
def test_a_job_at_the_crash_limit_is_dead(crashes: int, status: str) -> None:
    finish = decide(structs.replace(JOB, crashes=crashes), Crashed("child"), now=NOW)
    assert (finish.event, str(finish.status)) == (Event.CRASH, status)


def test_a_crash_on_the_last_attempt_is_dead() -> None:
    finish = decide(structs.replace(JOB, attempts=5), Crashed("child"), now=NOW)
    assert finish.status is JobStatus.DEAD


def test_A4_a_throttle_uses_the_given_delay() -> None:
    finish = decide(JOB, Throttled("1.5s", scope="smtp"), now=NOW)
    assert (finish.status, finish.delay_s, finish.scope) == (JobStatus.SCHEDULED, 1.5, "smtp")
    assert decide(JOB, Throttled(), now=NOW).delay_s is None


@pytest.mark.parametrize("field", ["throttled", "missing"])
def test_A5_a_job_beyond_its_budget_is_dead(field: str) -> None:
    outcome = Throttled(1) if field == "throttled" else Missing()
    day = 86_400 * SECOND
    for age, status in ((0, "scheduled"), (day, "scheduled"), (day + 1, "dead")):
        job = structs.replace(JOB, **{f"{field}_since": NOW - age})
        finish = decide(job, outcome, now=NOW)
        assert str(finish.status) == status
        assert (finish.error is not None) == (status == "dead" or field == "missing")


@pytest.mark.parametrize(("roll", "delay_s"), [(0.0, 7.5), (0.5, 15.0), (0.999, 22.485)])
def test_a_missing_handler_is_retried_with_jitter(roll: float, delay_s: float) -> None:
    job = structs.replace(JOB, missing_since=NOW - 60 * SECOND)
    assert decide(job, Missing(), now=NOW, roll=roll).delay_s == pytest.approx(delay_s)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("message", ["", "unknown argument 'cc'"])
def test_r9_a_refused_job_is_offered_again_soon_and_then_less_often(
    elsewhere: bool, message: str
) -> None:
    delays: list[float] = []
    for age_s in (None, -5.0, 0.25, 0.5, 1.0, 4.0, 60.0):
        since = None if age_s is None else NOW - round(age_s * SECOND)
        job = structs.replace(JOB, missing_since=since)
        finish = decide(job, Missing(message, elsewhere=elsewhere), now=NOW)
        assert (finish.event, finish.status) == (Event.MISSING, JobStatus.SCHEDULED)
        delays.append(finish.delay_s or 0.0)
    long = [0.5, 0.5, 0.5] if elsewhere else [1.0, 4.0, 15.0]
    assert delays == [0.25, 0.25, 0.25, 0.5, *long]


@pytest.mark.parametrize(
    ("by_value", "elsewhere", "age_s", "event", "status"),
    [
        (False, False, None, "missing", "scheduled"),
        (False, True, None, "missing", "scheduled"),
        (False, False, 90_000, "missing", "dead"),
        (False, True, 90_000, "missing", "scheduled"),
        (True, False, None, "die", "dead"),
        (True, True, None, "missing", "scheduled"),
        (True, True, 90_000, "missing", "dead"),
        (True, False, 90_000, "die", "dead"),
    ],
)
def test_u4_refused_arguments_wait_while_another_version_may_take_them(
    by_value: bool, elsewhere: bool, age_s: int | None, event: str, status: str
) -> None:
    since = None if age_s is None else NOW - age_s * SECOND
    job = structs.replace(JOB, missing_since=since)
    finish = decide(job, Missing("no fit", by_value=by_value, elsewhere=elsewhere), now=NOW)
    assert (str(finish.event), str(finish.status)) == (event, status)
    waits = "; it waits for a worker of another version" if status == "scheduled" else ""
    assert finish.error == "no fit" + waits


def test_stopped_is_a_failure_unless_a_cancel_was_requested() -> None:
    finish = decide(JOB, Stopped(), now=NOW)
    assert finish.status is JobStatus.FAILED
    assert final_status(finish.status, cancel_requested=True) is JobStatus.CANCELLED


@pytest.mark.parametrize("status", JobStatus)
def test_M2_only_done_survives_a_cancel_request(status: JobStatus) -> None:
    assert final_status(status, cancel_requested=False) is status
    final = final_status(status, cancel_requested=True)
    assert final is (JobStatus.DONE if status is JobStatus.DONE else JobStatus.CANCELLED)


@given(
    outcome=st.sampled_from(OUTCOMES),
    attempts=st.integers(1, 6),
    crashes=st.integers(0, 5),
    age_s=st.none() | st.integers(0, 200_000),
    roll=st.floats(0, 1, exclude_max=True),
)
def test_every_decision_is_a_legal_transition_and_reproducible(
    outcome: AnyOutcome, attempts: int, crashes: int, age_s: int | None, roll: float
) -> None:
    since = None if age_s is None else NOW - age_s * SECOND
    job = structs.replace(
        JOB, attempts=attempts, crashes=crashes, throttled_since=since, missing_since=since
    )
    finish = decide(job, outcome, now=NOW, roll=roll)
    assert finish.status in targets(JobStatus.RUNNING, finish.event)
    assert final_status(finish.status, cancel_requested=True) in targets(
        JobStatus.RUNNING, finish.event
    )
    assert (finish.key, finish.epoch, finish.queue, finish.kind) == (7, 3, "mail", "send")
    assert finish.delay_s is None or finish.delay_s >= 0
    assert finish == decide(job, outcome, now=NOW, roll=roll)


@given(started=st.booleans(), attempts=st.integers(1, 5), cancel=st.booleans())
def test_a_reap_follows_the_table(started: bool, attempts: int, cancel: bool) -> None:
    status, left = reaped(
        started=started, attempts=attempts, max_attempts=5, cancel_requested=cancel
    )
    assert left == (attempts if started else attempts - 1)
    if cancel:
        assert status is JobStatus.CANCELLED
    else:
        assert status is (JobStatus.DEAD if left >= 5 else JobStatus.PENDING)
    rule = "kept" if left == attempts else "given back"
    assert any(
        line.event is Event.REAP and line.target is status and str(line.attempts) == rule
        for line in TRANSITIONS
    )


def test_given_back_off_and_budgets_are_used() -> None:
    curve = Backoff(base_s=1, max_s=2, jitter=0.5)
    assert decide(JOB, Failed("x"), now=NOW, roll=0.0, backoff=curve).delay_s == 0.5
    tight = Budgets(max_crashes=1)
    assert decide(JOB, Crashed("x"), now=NOW, budgets=tight).status is JobStatus.DEAD
    assert DEFAULT_BUDGETS.throttle_s == 86_400


def test_a_failure_may_lengthen_the_delay_but_not_shorten_it() -> None:
    steps = Backoff(steps_s=(30.0,), jitter=0.0)
    longer = decide(JOB, Failed("busy", retry_after="2m"), now=NOW, backoff=steps)
    shorter = decide(JOB, Failed("busy", retry_after=5), now=NOW, backoff=steps)
    assert (longer.status, longer.delay_s) == (JobStatus.FAILED, 120.0)
    assert (shorter.status, shorter.delay_s) == (JobStatus.FAILED, 30.0)
