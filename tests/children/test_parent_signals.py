"""The worker parent as process 1 of a container, and its imports."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from forge_jobs.cli.parent_signals import reap_orphans


def _zombie() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    return process


def test_orphans_are_reaped_and_workers_left_to_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stray = _zombie()
    reap_orphans(set())
    assert psutil.pid_exists(stray.pid), "only the first process of a container inherits orphans"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    reap_orphans(set())
    assert not psutil.pid_exists(stray.pid)
    worker = _zombie()
    reap_orphans({worker.pid})
    assert worker.wait() == 0
    stray.wait()


def test_forge_worker_itself_needs_no_library(project_root: Path) -> None:
    code = (
        "import sys; import forge_jobs.cli.main, forge_jobs.cli.worker; "
        "heavy = {'msgspec', 'typer', 'rich', 'sqlite3', 'forge_jobs.app'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
