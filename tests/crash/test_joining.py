"""Processes come and go while jobs run: the small joining storm, as part of every test run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_slots_are_never_exceeded_while_processes_come_and_go(
    project_root: Path, backend: str
) -> None:
    command = [sys.executable, "-m", "tests.storm", "--quick", "--seed", "7", "--only", "join"]
    done = subprocess.run(
        [*command, "--backend", backend],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every promise was kept." in done.stdout
