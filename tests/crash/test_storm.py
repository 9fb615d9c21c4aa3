"""The small storm, as part of every test run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_kill_storm(project_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.storm", "--quick", "--seed", "7"],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every promise was kept." in done.stdout
