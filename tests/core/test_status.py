"""The transition table: properties that it must have."""

import pytest

from forge_jobs.core.status import (
    LIVE,
    RETRYABLE,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    Attempts,
    Event,
    JobStatus,
    is_terminal,
    targets,
)

S, P, H, R = JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.HELD, JobStatus.RUNNING
F, D, X, C = JobStatus.FAILED, JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED


def test_the_groups_cover_every_state_once() -> None:
    assert sorted((*WAITING, JobStatus.SUSPENDED, R, *TERMINAL)) == sorted(JobStatus)
    assert set(LIVE) == set(JobStatus) - set(TERMINAL)
    assert [status for status in JobStatus if is_terminal(status)] == [D, X, C]


def test_no_rule_is_written_twice() -> None:
    lines = [(rule.source, rule.event, rule.target, rule.attempts) for rule in TRANSITIONS]
    assert len(lines) == len(set(lines))
    assert all(rule.when for rule in TRANSITIONS)


def test_every_event_has_a_rule() -> None:
    assert {rule.event for rule in TRANSITIONS} == set(Event)


def test_nothing_but_a_claim_starts_a_job() -> None:
    into_running = {rule for rule in TRANSITIONS if rule.target is R and rule.source is not R}
    assert {(rule.source, rule.event) for rule in into_running} == {(P, Event.CLAIM)}
    assert {rule.attempts for rule in into_running} == {Attempts.SPENT}


def test_only_operators_change_a_terminal_job() -> None:
    events = {rule.event for rule in TRANSITIONS if rule.source in TERMINAL}
    assert events == {Event.RETRY, Event.DELETE}


def test_A6_history_is_never_run_again_and_running_jobs_are_never_retried() -> None:
    assert targets(D, Event.RETRY) == ()
    assert targets(R, Event.RETRY) == ()
    assert targets(P, Event.RETRY) == ()
    assert {status for status in JobStatus if targets(status, Event.RETRY)} == set(RETRYABLE)


def test_a_running_job_is_never_deleted() -> None:
    assert targets(R, Event.DELETE) == (R,)
    for status in set(JobStatus) - {R}:
        assert targets(status, Event.DELETE) == (None,)


def test_M2_done_stands_whatever_was_requested() -> None:
    assert targets(R, Event.DONE) == (D,)


@pytest.mark.parametrize(
    "event",
    [
        Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING,
        Event.RELEASE, Event.REAP,
    ],
)  # fmt: skip
def test_every_other_end_of_a_claim_can_be_a_cancel(event: Event) -> None:
    assert C in targets(R, event)


@pytest.mark.parametrize("event", [Event.THROTTLE, Event.SNOOZE, Event.MISSING, Event.RELEASE])
def test_release_and_waiting_outcomes_give_the_attempt_back(event: Event) -> None:
    rules = [r for r in TRANSITIONS if r.event is event and r.target in WAITING]
    assert {rule.attempts for rule in rules} == {Attempts.GIVEN_BACK}


@pytest.mark.parametrize("status", WAITING)
def test_a_waiting_job_can_be_cancelled_and_can_expire(status: JobStatus) -> None:
    assert targets(status, Event.CANCEL) == (C,)
    assert targets(status, Event.EXPIRE) == (C,)


def test_targets_of_an_illegal_transition_are_empty() -> None:
    assert targets(D, Event.CLAIM) == ()
    assert targets(None, Event.CLAIM) == ()
    assert targets(None, Event.ENQUEUE) == (P, S, H)
