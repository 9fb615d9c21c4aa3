"""How much memory another process uses, as far as the system tells."""

import os
import subprocess
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PS: Final = "/bin/ps"


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process now; None when it is gone or nobody can tell."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return _from_ps(pid)


def _from_ps(pid: int) -> int | None:
    # Where there is no /proc: a few milliseconds, once per job of a pool that wants to know.
    try:
        told = subprocess.run(
            [_PS, "-o", "rss=", "-p", str(pid)], capture_output=True, check=True, timeout=5
        )
        return int(told.stdout) * 1024
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
