"""Reads the resident memory of another process."""

import os
import subprocess
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PS: Final = "/bin/ps"


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process; None if the process is gone or the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return _from_ps(pid)


def _from_ps(pid: int) -> int | None:
    # For systems without /proc. Costs a few milliseconds per job of a pool with max_memory_mb.
    try:
        ps = subprocess.run(
            [_PS, "-o", "rss=", "-p", str(pid)], capture_output=True, check=True, timeout=5
        )
        return int(ps.stdout) * 1024
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
