"""A fork leaves nothing for the garbage collector to warn about."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("forking_without_warnings.py")


@pytest.mark.parametrize("mode", ["plain", "unused", "closed", "multiprocessing"])
def test_u15i_no_resource_warning_after_a_fork(
    tmp_path: Path, project_root: Path, mode: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", str(PROGRAM), f"sqlite:///{tmp_path}/jobs.db", mode],
        env=dict(os.environ, PYTHONPATH=str(project_root / "src")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
