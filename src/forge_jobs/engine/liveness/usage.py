"""What this process uses of its machine, as far as the system tells.

Numbers grow from the start of the process; whoever wants a rate subtracts. Linux tells everything,
elsewhere the bytes moved are counted in blocks and memory is the highest so far.
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
    """How many cores a process kept busy between two looks."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._seen: tuple[float, float] | None = None

    def of(self, cpu_s: float) -> float:
        """Since the last look; 0 at the first."""
        before, now = self._seen, self._mono()
        self._seen = (now, cpu_s)
        if before is None or now <= before[0]:
            return 0.0
        return max(0.0, cpu_s - before[1]) / (now - before[0])


def read_usage(folder: str = ".") -> Usage:
    """Look now; cheap enough for every heartbeat."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    read_bytes, write_bytes = _disk_bytes() or (own.ru_inblock * _BLOCK, own.ru_oublock * _BLOCK)
    return Usage(
        own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
        resident_bytes(),
        read_bytes,
        write_bytes,
        _full(folder),
    )


def _disk_bytes() -> tuple[int, int] | None:
    try:
        with open("/proc/self/io", "rb") as file:
            told = dict(line.split(b": ") for line in file.read().splitlines())
        return int(told[b"read_bytes"]), int(told[b"write_bytes"])
    except (OSError, KeyError, ValueError):
        return None


def _full(folder: str) -> float:
    try:
        facts = os.statvfs(folder)
    except OSError:
        return 0.0
    free, used = facts.f_bavail, facts.f_blocks - facts.f_bfree
    return round(used / (used + free), 4) if used + free else 0.0
