"""What this process uses of its machine, as far as the system tells.

Counters start with the process; a rate is the difference of two readings. On Linux all numbers are
exact; elsewhere disk bytes are counted in blocks and memory is the maximum so far.
"""

import os
import resource
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from .memory import resident_bytes

_BLOCK: Final = 512


class Usage(Struct, frozen=True):
    """Processor seconds (with child processes that ended), memory now, bytes moved to and from
    disks so far, and the used share of the file system the process works in."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    disk_share: float = 0.0


class Cores:
    """How many cores the process kept busy between two readings."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._seen: tuple[float, float] | None = None

    def of(self, cpu_s: float) -> float:
        """Cores since the last call; 0 at the first."""
        before, now = self._seen, self._mono()
        self._seen = (now, cpu_s)
        if before is None or now <= before[0]:
            return 0.0
        return max(0.0, cpu_s - before[1]) / (now - before[0])


def read_usage(folder: str = ".") -> Usage:
    """Read the counters now; cheap enough for every heartbeat."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    read_bytes, write_bytes = _disk_bytes() or (own.ru_inblock * _BLOCK, own.ru_oublock * _BLOCK)
    return Usage(
        own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
        resident_bytes(),
        read_bytes,
        write_bytes,
        _disk_share(folder),
    )


def _disk_bytes() -> tuple[int, int] | None:
    try:
        with open("/proc/self/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
        return int(fields[b"read_bytes"]), int(fields[b"write_bytes"])
    except (OSError, KeyError, ValueError):
        return None


def _disk_share(folder: str) -> float:
    try:
        stats = os.statvfs(folder)
    except OSError:
        return 0.0
    free, used = stats.f_bavail, stats.f_blocks - stats.f_bfree
    return round(used / (used + free), 4) if used + free else 0.0
