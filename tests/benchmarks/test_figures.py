"""How the benchmark compares: bounds, intervals, and what makes a comparison unfair."""

import pytest

from benchmarks import targets
from benchmarks.figures import Outcome, Sense, Series, Target, Verdict, paired, percentile, ratio

SPEED = Target("speed", "a ratio", 10, 25, "×", level="full")
DELAY = Target("delay", "a delay", 8, 5, "ms", Sense.MAX_AT)
SHARE = Target("share", "a share", 1.0, 0.5, "%", Sense.BELOW)


@pytest.mark.parametrize(
    ("target", "measured", "verdict"),
    [
        (SPEED, 25.0, Verdict.AIM),
        (SPEED, 24.9, Verdict.MUST),
        (SPEED, 9.9, Verdict.MISSED),
        (SPEED, None, Verdict.OPEN),
        (DELAY, 5.0, Verdict.AIM),
        (DELAY, 8.1, Verdict.MISSED),
        (SHARE, 0.5, Verdict.MUST),
        (SHARE, 1.0, Verdict.MISSED),
        (targets.untargeted("x", "beside"), 3.0, Verdict.BESIDE),
    ],
)
def test_verdict(target: Target, measured: float | None, verdict: Verdict) -> None:
    assert Outcome(target, measured).verdict is verdict


def test_another_durability_is_never_a_success() -> None:
    assert Outcome(SPEED, 100.0, unequal=True).verdict is Verdict.UNEQUAL


def test_an_interval_passes_when_its_better_end_reaches_the_bar() -> None:
    assert Outcome(SPEED, 9.0, low=8.0, high=10.0).verdict is Verdict.MUST
    assert Outcome(SPEED, 9.0, low=8.0, high=9.9).verdict is Verdict.MISSED
    assert Outcome(DELAY, 9.0, low=8.0, high=10.0).verdict is Verdict.MUST


def test_paired_windows_give_the_median_and_an_interval_around_it() -> None:
    outcome = paired(SPEED, [0.9, 1.0, 1.1] * 5)
    assert outcome.measured == 1.0
    assert outcome.low is not None
    assert outcome.high is not None
    assert 0.9 <= outcome.low <= 1.0 <= outcome.high <= 1.1


def test_a_peer_is_judged_by_its_best_setting() -> None:
    series = Series()
    series.values = {("one", "jobs/s"): [10.0, 30.0, 20.0], ("four", "jobs/s"): [25.0]}
    best = series.best(["one", "four", "absent"], "jobs/s")
    assert best == ("four", 25.0)
    assert ratio(SPEED, 250.0, best).measured == 10.0
    assert ratio(SPEED, None, best).measured is None


def test_percentile_lies_between_its_neighbours() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert percentile([5.0], 0.99) == 5.0
