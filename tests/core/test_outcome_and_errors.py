"""Outcomes that handlers raise, and the tree of errors."""

from collections.abc import Iterator

import pytest

from forge_jobs.core import errors
from forge_jobs.core.errors import BadDuration, BadOption, ForgeError, JobFailed
from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Snooze, Throttled


def _tree(root: type[ForgeError]) -> Iterator[type[ForgeError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in _tree(ForgeError) if error.__module__ == errors.__name__]
    assert len(codes) == len(set(codes))
    assert all(code == code.lower() and " " not in code for code in codes)


def test_unavailable_and_unknown_cannot_be_confused() -> None:
    assert not issubclass(errors.Unknown, errors.Unavailable)
    assert not issubclass(errors.Unavailable, errors.Unknown)


def test_a_failed_job_error_has_state_and_reason() -> None:
    error = JobFailed("01ABC", "dead", None)
    assert str(error) == "job 01ABC ended as dead: no reason recorded"
    assert (error.job_id, error.status, error.error) == ("01ABC", "dead", None)


def test_outcomes_can_be_raised_returned_and_found_by_their_long_name() -> None:
    pairs = [(JobOutcome.Done, Done), (JobOutcome.Failed, Failed), (JobOutcome.Dead, Dead)]
    pairs += [(JobOutcome.Throttled, Throttled), (JobOutcome.Snooze, Snooze)]
    assert all(long is short for long, short in pairs)
    with pytest.raises(JobOutcome, match="no more"):
        raise Dead("no more")


def test_outcomes_check_their_durations() -> None:
    assert Throttled("2m").retry_after_s == 120
    assert Throttled().retry_after_s is None
    assert Snooze("10s").delay_s == 10
    with pytest.raises(BadOption, match="longer than zero"):
        Snooze(0)
    with pytest.raises(BadDuration, match="retry_after"):
        Throttled(-1)
