"""The history of a process: JSON lines in a file of its own that survive kill -9."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds since boot: one clock for all processes."""
    return time.clock_gettime(_CLOCK)


class History:
    """Appends lines with one write each, so that a kill can truncate only the last line."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # A predecessor that was killed during a write must not damage the first line.
        os.write(self._descriptor, b"\n")

    def write(self, op: str, **fields: Any) -> None:
        entry = {"op": op, "at": now(), "pid": os.getpid(), **fields}
        os.write(self._descriptor, json.dumps(entry).encode() + b"\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of one history."""
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line) if line else None
        except ValueError:
            continue
        if entry is not None:
            yield entry


def read_all(folder: Path) -> list[dict[str, Any]]:
    """The lines of all histories, ordered by time."""
    entries = [entry for path in sorted(folder.glob("*.jsonl")) for entry in read(path)]
    return sorted(entries, key=lambda entry: entry["at"])
