"""Processes come and go while jobs run, and share a rate: small storms in every test run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def _raise(project_root: Path, name: str, backend: str) -> None:
    command = [sys.executable, "-m", "rigs.storms", "--quick", "--seed", "7", "--only", name]
    done = subprocess.run(
        [*command, "--backend", backend],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every check passed." in done.stdout


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_slots_are_never_exceeded_while_processes_come_and_go(
    project_root: Path, backend: str
) -> None:
    _raise(project_root, "join", backend)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_four_processes_stay_within_one_burst_of_a_rate(project_root: Path, backend: str) -> None:
    _raise(project_root, "rate", backend)
