"""Workers as users start them: ``forge worker``, a parent whose child processes do the work."""

import sys
from pathlib import Path

from rigs.storms.rig import GRACE_S, Actor


def worker_command(application: str, queues: str, *, lease_s: float) -> list[str]:
    """The command of one ``forge worker``."""
    return [
        sys.executable, "-m", "forge_jobs", "worker", application, "--queues", queues,
        "--lease", str(lease_s), "--grace", str(GRACE_S),
    ]  # fmt: skip


def children_of(actor: Actor) -> list[int]:
    """The pids of the processes that this one has started; those register in the store."""
    if actor.process is None:
        return []
    pid = actor.process.pid
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def is_worker(pid: int) -> bool:
    """Whether this process is a worker's child process that still runs."""
    try:
        return b"forge_jobs.cli.worker_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
