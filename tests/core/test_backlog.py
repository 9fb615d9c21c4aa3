"""Whether workers keep up, and when a backlog is empty."""

import pytest

from forge_jobs.core.backlog import Trend, earlier_backlogs, empty_in_s, trend, utilisation


@pytest.mark.parametrize(
    ("backlog", "enqueued", "ended", "running", "expected"),
    [
        (0, 0, 0, 0, Trend.IDLE),
        (0, 500, 500, 3, Trend.KEEPING_UP),
        (40, 0, 0, 0, Trend.STOPPED),
        (40, 5, 0, 2, Trend.FALLING_BEHIND),
        (40, 100, 98, 2, Trend.KEEPING_UP),
        (40, 100, 50, 2, Trend.FALLING_BEHIND),
        (40, 50, 100, 2, Trend.CATCHING_UP),
    ],
)
def test_the_pace_of_a_backlog(
    backlog: int, enqueued: int, ended: int, running: int, expected: Trend
) -> None:
    assert trend(backlog, enqueued, ended, running=running) is expected


def test_a_backlog_that_shrinks_has_an_end_and_another_has_none() -> None:
    assert empty_in_s(600, 100, 400, 60.0) == 120.0
    assert empty_in_s(600, 400, 400, 60.0) is None
    assert empty_in_s(0, 400, 100, 60.0) == 0.0


def test_earlier_backlogs_lead_to_the_present_one() -> None:
    assert earlier_backlogs(10, [5, -2, 3]) == [9, 7, 10]
    # an operator brought jobs back, which nothing enqueued: never below zero
    assert earlier_backlogs(1, [4, 4]) == [0, 1]


def test_utilisation_is_a_share_of_all_slots() -> None:
    assert utilisation(30.0, 4, 60.0) == 0.125
    assert utilisation(900.0, 1, 60.0) == 1.0
    assert utilisation(30.0, 0, 60.0) is None
