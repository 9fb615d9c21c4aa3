"""The judges of outages catch what they are there for, one made-up breach at a time."""

from dataclasses import replace
from typing import Any

import pytest

from rigs.storms.checks import Judgement
from rigs.storms.outages import Aftermath, check_outages

UP: dict[str, Any] = {
    "op": "up", "at": 12.0, "wall": 100.0, "seconds": 2.0, "cpu": 0.1, "attempts": 40,
    "processes": 3, "waiting": True,
}  # fmt: skip
GOOD = Aftermath(starts={1: [90.0, 101.0], 2: [102.0]}, crashes=0, dead=0, woken=(20, 20))


def findings(up: dict[str, Any], aftermath: Aftermath) -> dict[str, list[str]]:
    judgement = Judgement()
    check_outages(judgement, [up], aftermath)
    return {name: found for name, found in judgement.findings.items() if found}


def test_a_good_outage_is_clean() -> None:
    judgement = Judgement()
    check_outages(judgement, [UP], GOOD)
    assert judgement.clean
    assert judgement.figures["slowest worker to go on"] == "2.00 s"


@pytest.mark.parametrize(
    ("name", "up", "aftermath"),
    [
        ("slow to go on", UP, replace(GOOD, starts={1: [101.0], 2: [106.0]})),
        ("slow to go on", UP, replace(GOOD, starts={1: [101.0, 106.0], 2: [99.0]})),
        ("busy while it was down", {**UP, "attempts": 500}, GOOD),
        ("busy while it was down", {**UP, "cpu": 5.0}, GOOD),
        ("healthy workers reaped", UP, replace(GOOD, crashes=1)),
        ("healthy workers reaped", UP, replace(GOOD, dead=1)),
        ("deaf afterwards", UP, replace(GOOD, woken=(9, 20))),
    ],
)
def test_breach(name: str, up: dict[str, Any], aftermath: Aftermath) -> None:
    assert list(findings(up, aftermath)) == [name]


def test_one_worker_may_take_all_there_is() -> None:
    assert findings(UP, replace(GOOD, starts={1: [101.0], 2: [99.0]})) == {}


def test_a_queue_that_ran_dry_proves_no_delay() -> None:
    assert findings({**UP, "waiting": False}, replace(GOOD, starts={1: [106.0]})) == {}
