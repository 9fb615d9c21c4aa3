"""No storm passes when it did nothing: each check of an empty run has a finding."""

import pytest

from rigs.storms import __main__ as command_line
from rigs.storms.checks import CheckReport, Evidence, check
from rigs.storms.gateway_checks import GatewayEvidence, check_gateway
from rigs.storms.limits import LimitOptions, check_limits
from rigs.storms.outages import OutageEvidence, check_outages
from rigs.storms.rig import StormFailed


def test_without_jobs_and_runs() -> None:
    found = check(Evidence([], [], 0, lease_s=2.0))
    assert found.findings["nothing was done"] == ["no job was stored", "no run of a job ended"]


def test_without_updates_and_answers() -> None:
    found = check_gateway(GatewayEvidence([], {("echo", 1): []}, {}))
    assert len(found.findings["nothing was done"]) == 2


def test_without_outages() -> None:
    report = CheckReport()
    check_outages(report, [], OutageEvidence(starts={}, crashes=0, dead=0, woken=(0, 0)))
    assert report.findings["nothing was interrupted"] == ["the server was never down"]


def test_without_limited_runs() -> None:
    with pytest.raises(StormFailed, match="no keyed job ran"):
        check_limits([], LimitOptions(jobs=0))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--only", "pull", "--backend", "sqlite", "--jobs", "0"], "nothing would be done"),
        (["--only", "commands", "--backend", "postgres"], "no storm ran"),
    ],
)
def test_without_work_by_the_command_line(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["storms", *words])
    assert command_line.main() == 1
    assert why in capsys.readouterr().out
