"""Each check of outages finds its violation in made-up evidence."""

from dataclasses import replace
from typing import Any

import pytest

from rigs.storms.checks import CheckReport
from rigs.storms.outages import OutageEvidence, check_outages

UP: dict[str, Any] = {
    "op": "up", "at": 12.0, "wall": 100.0, "seconds": 2.0, "cpu": 0.1, "attempts": 40,
    "processes": 3, "waiting": True,
}  # fmt: skip
GOOD = OutageEvidence(starts={1: [90.0, 101.0], 2: [102.0]}, crashes=0, dead=0, woken=(20, 20))


def findings(up: dict[str, Any], evidence: OutageEvidence) -> dict[str, list[str]]:
    report = CheckReport()
    check_outages(report, [up], evidence)
    return {name: found for name, found in report.findings.items() if found}


def test_a_valid_outage_has_no_findings() -> None:
    report = CheckReport()
    check_outages(report, [UP], GOOD)
    assert report.clean
    assert report.figures["slowest worker to resume"] == "2.00 s"


@pytest.mark.parametrize(
    ("name", "up", "evidence"),
    [
        ("slow to resume", UP, replace(GOOD, starts={1: [101.0], 2: [106.0]})),
        ("slow to resume", UP, replace(GOOD, starts={1: [101.0, 106.0], 2: [99.0]})),
        ("busy while it was down", {**UP, "attempts": 500}, GOOD),
        ("busy while it was down", {**UP, "cpu": 5.0}, GOOD),
        ("healthy workers reaped", UP, replace(GOOD, crashes=1)),
        ("healthy workers reaped", UP, replace(GOOD, dead=1)),
        ("notifications missed", UP, replace(GOOD, woken=(9, 20))),
    ],
)
def test_each_violation_of_an_outage_is_found(
    name: str, up: dict[str, Any], evidence: OutageEvidence
) -> None:
    assert list(findings(up, evidence)) == [name]


def test_one_worker_may_claim_all_jobs() -> None:
    assert findings(UP, replace(GOOD, starts={1: [101.0], 2: [99.0]})) == {}


def test_an_empty_queue_proves_no_delay() -> None:
    assert findings({**UP, "waiting": False}, replace(GOOD, starts={1: [106.0]})) == {}
