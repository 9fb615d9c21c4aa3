"""Stopping a process while it is not in the middle of a write to a SQLite file.

A process that is stopped inside a transaction keeps everybody else from writing; that is SQLite's
nature and not what these tests are about.
"""

import fcntl
import os
import signal
import time
from pathlib import Path


def stop(pid: int, database: Path) -> None:
    """SIGSTOP a process at a moment when it is not its turn to write."""
    floor = os.open(Path(f"{database}-forge") / "turn-b.lock", os.O_RDWR)
    try:
        for _ in range(500):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.02)
            try:
                fcntl.flock(floor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.02)
            else:
                fcntl.flock(floor, fcntl.LOCK_UN)
                return
    finally:
        os.close(floor)
    raise AssertionError("the process is always in the middle of a write")
