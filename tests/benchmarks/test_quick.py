"""The whole benchmark in its quick size: it runs, every target has its row, every row is counted.

Its figures mean nothing here and are not looked at. Peers are not among the test tools: what needs
one of them is "not measured" unless it happens to be installed.
"""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import targets
from benchmarks.figures import Target, Verdict
from benchmarks.measures import GROUPS
from benchmarks.systems import OURS, OWN, PACKAGES, django_project

ROOT = Path(__file__).resolve().parents[2]
NEEDS_PEER = {
    "drain-full": {"huey", "persist-queue"},
    "drain-normal": {"litequeue"},
    "enqueue-normal": {"litequeue"},
    "enqueue-full": {"huey"},
    "def-full": {"huey", "persist-queue"},
    "def-normal": {"litequeue"},
    "postgres-drain": {"pgqueuer"},
    "postgres-bulk": {"pgqueuer"},
    "postgres-one": {"pgqueuer"},
    "postgres-callers": {"pgqueuer"},
    "postgres-sync": {"pgqueuer"},
    "postgres-steps": {"absurd"},
    "postgres-steps-cost": {"absurd"},
    "door-sqlite": {"python-telegram-bot"},
    "door-postgres": {"python-telegram-bot"},
}
# A quick run leaves these peers out, even where they are installed: the first windows of each take
# seconds.
NOT_QUICK = {
    "steps", "postgres-step-lone", "postgres-step-resume-dbos", "postgres-step-resume-absurd",
}  # fmt: skip
# Differences of two figures: nothing is a good result.
DIFFERENCES = {"postgres-step-sleeping", "postgres-step-waiting"}


@dataclass(frozen=True)
class Run:
    """What one run of a group said."""

    group: str
    done: subprocess.CompletedProcess[str]
    document: Path

    @property
    def targets(self) -> list[Target]:
        if self.group == "gateway":
            return [targets.DOOR_SQLITE, targets.DOOR_POSTGRES, targets.DOOR_P99]
        if self.group == "django":
            return [targets.DJANGO_DRAIN, targets.DJANGO_ENQUEUE, targets.DJANGO_START]
        on_postgres = self.group == "postgres"
        return [one for one in targets.ALL if one.key.startswith("postgres-") is on_postgres]

    def figures(self) -> dict[str, Any]:
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        return json.loads(self.document.read_text())


@pytest.fixture(scope="module", params=GROUPS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One quick run of each group for all tests of this file."""
    document = tmp_path_factory.mktemp("bench") / "figures.json"
    command = [
        sys.executable, "-m", "benchmarks", "--quick", "--only", request.param,
        "--json", str(document),
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, words = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, words = process.communicate(timeout=20)
    done = subprocess.CompletedProcess(command, process.returncode, out, words)
    return Run(request.param, done, document)


def test_exits_0_and_counts_rows(run: Run) -> None:
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    assert "row counts: all as expected; rounds that failed: 0" in run.done.stdout


def test_prints_every_target_within_100_columns(run: Run) -> None:
    lines = run.done.stdout.splitlines()
    verdicts = tuple(verdict.value for verdict in Verdict)
    for target in run.targets:
        rows = [line for line in lines if line.startswith(target.text)]
        assert len(rows) == 1, target.text
        assert rows[0].endswith(verdicts)
    assert max(map(len, lines)) <= 100


def test_every_measure_of_ours_has_figures(run: Run) -> None:
    figures = run.figures()
    assert list(figures["measures"]) == list(GROUPS[run.group])
    outcomes = {
        outcome["key"]: outcome
        for measure in figures["measures"].values()
        for outcome in measure["targets"]
    }
    peers = {name: package for name, package in PACKAGES.items() if name not in OWN}
    installed = {name for name, package in peers.items() if is_installed(package)}
    # `make bench` makes the environment with the backends, a smoke run does not.
    without_django = run.group == "django" and django_project.interpreter(quick=True) is None
    for target in [] if without_django else run.targets:
        measured = outcomes[target.key]["measured"]
        if target.key in NOT_QUICK:
            assert measured is None, target.key
        elif NEEDS_PEER.get(target.key, set()) <= installed:
            assert measured is not None, target.key
            assert measured > 0 or target.key in DIFFERENCES, target.key
    for measure in figures["measures"].values():
        assert measure["problems"] == []
        assert measure["failures"] == []


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def test_durability_is_what_the_table_claims(run: Run) -> None:
    figures = run.figures()
    if run.group == "postgres":
        assert f"{OURS}-postgres: synchronous_commit on (on its own connection)" in figures["notes"]
        return
    if run.group == "django":
        return
    if run.group == "gateway":
        assert any("synchronous_commit on" in note for note in figures["notes"])
        return
    found = {one["text"].partition(":")[0]: one for one in figures["durability"]}
    for level, enqueued in (("FULL", "FULL"), ("default", "FULL"), ("NORMAL", "NORMAL")):
        audited = found[f"{OURS}, {level}"]
        assert f"100 enqueues = 100 {enqueued} commits" in audited["text"]
        assert "journal wal" in audited["text"]
        assert audited["as_said"], audited["text"]
