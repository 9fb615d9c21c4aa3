"""The small storms, as part of every test run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("kill", "sqlite"),
        ("kill", "postgres"),
        ("restart", "postgres"),
        ("cron", "sqlite"),
        ("steps", "sqlite"),
        ("steps", "postgres"),
        ("versions", "sqlite"),
        ("versions", "postgres"),
        ("alerts", "sqlite"),
    ],
)
def test_storm(project_root: Path, name: str, backend: str) -> None:
    command = [sys.executable, "-m", "rigs.storms", "--quick", "--seed", "7"]
    done = subprocess.run(
        [*command, "--only", name, "--backend", backend],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every check passed." in done.stdout
