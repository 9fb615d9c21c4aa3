"""persist-queue (SQLiteAckQueue): `put`, `get` and `ack`; the worker is the caller's own loop.

Keeps: every acknowledged row, unless the caller clears them. Acknowledges: `ack` after the
work; a killed loop's rows are taken up again when the queue is next opened. It leaves
synchronous at SQLite's FULL and offers no option, so the benchmark sets the pragma on its
connection and reads it back. Both of its ways past the acknowledged rows are measured: the
ordered cursor (`next_in_order`) and clearing them as they gather.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from persistqueue import SQLiteAckQueue

from benchmarks.systems import Announce
from benchmarks.systems.timing import span

LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL"}
CALL_LIMIT_SECONDS = 55.0


def noop() -> None:
    """The handler every system runs."""


class PersistQueueSystem:
    """One SQLiteAckQueue in one directory."""

    def __init__(self, directory: Path, synchronous: str, announce: Announce) -> None:
        self._announce = announce
        self._queue = SQLiteAckQueue(str(directory / "persist-queue"))
        self._synchronous = synchronous
        self._set_level(synchronous)

    def _set_level(self, synchronous: str) -> None:
        for connection in {id(c): c for c in (self._queue._getter, self._queue._putter)}.values():
            connection.execute(f"PRAGMA synchronous = {synchronous}")

    def _put(self, jobs: int) -> None:
        for _ in range(jobs):
            self._queue.put([])

    def seed(self, jobs: int) -> dict[str, Any]:
        """Not timed, so without fsync: the rows are the same."""
        self._set_level("off")
        self._put(jobs)
        self._set_level(self._synchronous)
        return {}

    def enqueue(self, jobs: int) -> dict[str, Any]:
        return span(lambda: self._put(jobs), jobs)

    def drain(self, jobs: int, clear_every: int = 0) -> dict[str, Any]:
        """get, call, ack; by the ordered cursor, or clearing after every `clear_every` jobs."""
        queue, handled, last = self._queue, 0, None
        limit = time.monotonic() + CALL_LIMIT_SECONDS
        self._announce("up")
        cpu, started = time.process_time(), time.monotonic()
        while handled < jobs:
            if last is None or clear_every:
                item = queue.get(block=False, raw=True)
            else:
                item = queue.get(block=False, raw=True, id=last, next_in_order=True)
            noop()
            last = item["pqid"]
            queue.ack(id=last)
            handled += 1
            if clear_every and handled % clear_every == 0:
                queue.clear_acked_data(max_delete=clear_every, keep_latest=0)
            if time.monotonic() > limit:
                raise TimeoutError(f"{handled} of {jobs} jobs within {CALL_LIMIT_SECONDS} s")
        seconds = time.monotonic() - started
        return {"jobs": handled, "seconds": seconds, "cpu": time.process_time() - cpu}

    def rows(self) -> dict[str, Any]:
        unfinished = self._queue._count() + self._queue.unack_count()
        return {"waiting": unfinished, "finished": self._queue.acked_count()}

    def durability(self) -> dict[str, Any]:
        level = self._queue._putter.execute("PRAGMA synchronous").fetchone()[0]
        journal = self._queue._putter.execute("PRAGMA journal_mode").fetchone()[0]
        return {"synchronous": LEVELS[level], "journal": journal}


def open_system(directory: Path, synchronous: str, announce: Announce) -> PersistQueueSystem:
    return PersistQueueSystem(directory, synchronous, announce)
