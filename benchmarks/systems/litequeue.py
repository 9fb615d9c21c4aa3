"""litequeue: a table with `put`, `pop` and `done`; the worker is the caller's own loop.

Keeps: every finished row with its times, unless the caller prunes; both ways are measured,
because `pop` walks past the finished rows. Acknowledges: `done` after the work, so a killed
loop leaves the row locked for the caller to find. No retries, no timeouts, no leases. It sets
synchronous NORMAL.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from litequeue import LiteQueue

from benchmarks.systems import Announce
from benchmarks.systems.timing import Arrivals, span, trickle

LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL"}
CALL_LIMIT_SECONDS = 55.0


def noop() -> None:
    """The handler every system runs."""


class LitequeueSystem:
    """One LiteQueue on one file."""

    def __init__(self, directory: Path, synchronous: str, announce: Announce) -> None:
        if synchronous != "normal":
            raise ValueError("litequeue sets synchronous NORMAL by itself")
        self._announce = announce
        self._queue = LiteQueue(str(directory / "litequeue.db"))
        self._queue.conn.execute("PRAGMA busy_timeout = 5000")

    def _put(self, jobs: int) -> None:
        for _ in range(jobs):
            self._queue.put("[]")

    def _put_together(self, jobs: int) -> None:
        with self._queue.transaction():
            self._put(jobs)

    def seed(self, jobs: int) -> dict[str, Any]:
        self._put_together(jobs)
        return {}

    def enqueue(self, jobs: int) -> dict[str, Any]:
        return span(lambda: self._put(jobs), jobs)

    def enqueue_bulk(self, jobs: int) -> dict[str, Any]:
        """Its own `transaction()` around a thousand `put` calls."""

        def put_all() -> None:
            for first in range(0, jobs, 1_000):
                self._put_together(min(1_000, jobs - first))

        return span(put_all, jobs)

    def enqueue_concurrent(self, jobs: int, callers: int) -> dict[str, Any]:
        with ThreadPoolExecutor(callers) as pool:
            share = jobs // callers
            return span(lambda: list(pool.map(self._put, [share] * callers)), share * callers)

    def drain(self, jobs: int, prune_every: int = 0) -> dict[str, Any]:
        """pop, call, done; with `prune_every` finished rows are deleted after so many jobs."""
        queue, handled = self._queue, 0
        limit = time.monotonic() + CALL_LIMIT_SECONDS
        self._announce("up")
        cpu, started = time.process_time(), time.monotonic()
        while (message := queue.pop()) is not None:
            noop()
            queue.done(message.message_id)
            handled += 1
            if prune_every and handled % prune_every == 0:
                queue.prune()
            if time.monotonic() > limit:
                raise TimeoutError(f"{handled} of {jobs} jobs within {CALL_LIMIT_SECONDS} s")
        seconds = time.monotonic() - started
        return {"jobs": handled, "seconds": seconds, "cpu": time.process_time() - cpu}

    def listen(self, poll: float, jobs: int) -> dict[str, Any]:
        arrivals = Arrivals()
        limit = time.monotonic() + CALL_LIMIT_SECONDS
        self._announce("up")
        while len(arrivals.started) < jobs and time.monotonic() < limit:
            message = self._queue.pop()
            if message is None:
                time.sleep(poll)
                continue
            arrivals.note(float(message.data))
            self._queue.done(message.message_id)
        return {"milliseconds": arrivals.milliseconds()}

    def trickle(self, jobs: int, gap: float) -> dict[str, Any]:
        return {"calls": trickle(lambda sent: self._queue.put(repr(sent)), jobs, gap)}

    def rows(self) -> dict[str, Any]:
        count = dict(
            self._queue.conn.execute(
                "SELECT status, count(*) FROM Queue GROUP BY status"
            ).fetchall()
        )
        return {"waiting": count.get(0, 0) + count.get(1, 0), "finished": count.get(2, 0)}

    def durability(self) -> dict[str, Any]:
        level = self._queue.conn.execute("PRAGMA synchronous").fetchone()[0]
        journal = self._queue.conn.execute("PRAGMA journal_mode").fetchone()[0]
        return {"synchronous": LEVELS[level], "journal": journal}

    def close(self) -> None:
        self._queue.close()


def open_system(directory: Path, synchronous: str, announce: Announce) -> LitequeueSystem:
    return LitequeueSystem(directory, synchronous, announce)
