"""The whole benchmark in its quick size: it runs, every target has its row, every row is counted.

Its figures mean nothing here and are not looked at. Peers are not among the test tools: what needs
one of them is "not measured" unless it happens to be installed.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import targets
from benchmarks.figures import Verdict
from benchmarks.measures import MEASURES
from benchmarks.systems import OURS, PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PEERS = {name: package for name, package in PACKAGES.items() if name != OURS}
NEEDS_PEER = {
    "drain-full": {"huey", "persist-queue"},
    "drain-normal": {"litequeue"},
    "enqueue-normal": {"litequeue"},
    "enqueue-full": {"huey"},
    "def-full": {"huey", "persist-queue"},
    "def-normal": {"litequeue"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One quick run for all tests of this file."""
    document = tmp_path_factory.mktemp("bench") / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", str(document)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, words = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, words = process.communicate(timeout=20)
    return subprocess.CompletedProcess(command, process.returncode, out, words), document


@pytest.fixture(scope="module")
def figures(run: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    """Every figure of the run."""
    done, document = run
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(document.read_text())


def test_exits_0_and_counts_rows(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = run
    assert done.returncode == 0, done.stdout + done.stderr
    assert "row counts: all as expected; rounds that failed: 0" in done.stdout


def test_prints_every_target_within_100_columns(
    run: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = run
    lines = done.stdout.splitlines()
    verdicts = tuple(verdict.value for verdict in Verdict)
    for target in targets.ALL:
        rows = [line for line in lines if line.startswith(target.text)]
        assert len(rows) == 1, target.text
        assert rows[0].endswith(verdicts)
    assert max(map(len, lines)) <= 100


def test_every_measure_of_ours_has_figures(figures: dict[str, Any]) -> None:
    assert list(figures["measures"]) == list(MEASURES)
    outcomes = {
        outcome["key"]: outcome
        for measure in figures["measures"].values()
        for outcome in measure["targets"]
    }
    installed = {name for name, package in PEERS.items() if importlib.util.find_spec(package)}
    for target in targets.ALL:
        alone = target.key not in NEEDS_PEER
        measured = outcomes[target.key]["measured"]
        if alone or NEEDS_PEER[target.key] & installed == NEEDS_PEER[target.key]:
            assert measured is not None, target.key
            assert measured > 0, target.key
    for measure in figures["measures"].values():
        assert measure["problems"] == []
        assert measure["failures"] == []


def test_our_commits_have_the_level_that_the_table_claims(figures: dict[str, Any]) -> None:
    found = {one["text"].partition(":")[0]: one for one in figures["durability"]}
    for level, enqueued in (("FULL", "FULL"), ("default", "FULL"), ("NORMAL", "NORMAL")):
        audited = found[f"{OURS}, {level}"]
        assert f"100 enqueues = 100 {enqueued} commits" in audited["text"]
        assert "journal wal" in audited["text"]
        assert audited["as_said"], audited["text"]
