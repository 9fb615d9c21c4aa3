"""Workers as users start them: ``forge worker``, a parent whose child processes do the work."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE_S = 5.0


def worker_command(
    application: str, queues: str, *, lease_s: float | None = None, grace_s: float = GRACE_S
) -> list[str]:
    """The command of one ``forge worker``."""
    lease = [] if lease_s is None else ["--lease", str(lease_s)]
    return [
        sys.executable, "-m", "forge_jobs", "worker", application, "--queues", queues,
        "--grace", str(grace_s), *lease,
    ]  # fmt: skip


def children_of(process: "subprocess.Popen[bytes] | None") -> list[int]:
    """The pids of the processes that this one has started; those register in the store."""
    if process is None:
        return []
    try:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def kill_all(process: "subprocess.Popen[bytes]") -> None:
    """Kill a ``forge worker`` at one instant: the parent, which can start no other child then, and
    its children, which cannot drain."""
    children = children_of(process)
    process.kill()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_worker(pid: int) -> bool:
    """Whether this process is a worker's child process that still runs."""
    try:
        return b"forge_jobs.cli.worker_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class ForgeWorker:
    """One ``forge worker`` with one child process, for a storm that starts and ends them itself."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Any) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """The pid of the child process, which registers in the store; 0 while there is none."""
        return next(iter(children_of(self._process)), 0)

    @property
    def returncode(self) -> int | None:
        """The exit code once the parent has ended."""
        return self._process.poll()

    def stop(self) -> None:
        """Drain and end, as an operator stops it."""
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """Kill parent and child at one instant."""
        kill_all(self._process)
        self._process.wait()
