"""Huey (SqliteHuey): a task queue with worker threads.

Keeps: nothing of a finished no-op (the row is deleted when it is taken; a result of None is not
stored). Acknowledges: by deleting the row before the handler is called, so a killed worker
loses the job. Counted when the handler was called. `fsync=True` is synchronous FULL,
`fsync=False` is OFF; it has no NORMAL.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from huey import SqliteHuey

from benchmarks.systems import Announce
from benchmarks.systems.timing import Arrivals, span, trickle

LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL"}
CALL_LIMIT_SECONDS = 55.0


class HueySystem:
    """One SqliteHuey on one file."""

    def __init__(self, directory: Path, synchronous: str, announce: Announce) -> None:
        if synchronous != "full":
            raise ValueError("huey can be opened with synchronous FULL only")
        logging.getLogger("huey").setLevel(logging.WARNING)
        self._announce = announce
        self._huey = SqliteHuey("bench", filename=str(directory / "huey.db"), fsync=True)
        self._calls = 0
        self._wanted = 0
        self._reached = threading.Event()
        self._arrivals = Arrivals()
        self._noop = self._huey.task(name="noop")(self._count)
        self._wait = self._huey.task(name="wait")(self._sleep)
        self._stamp = self._huey.task(name="stamp")(self._arrive)

    def _count(self) -> None:
        self._calls += 1
        if self._calls >= self._wanted:
            self._reached.set()

    def _sleep(self) -> None:
        time.sleep(0.01)
        self._count()

    def _arrive(self, sent: float) -> None:
        self._arrivals.note(sent)
        self._count()

    def _put(self, jobs: int, kind: str = "noop") -> None:
        task = self._wait if kind == "wait" else self._noop
        for _ in range(jobs):
            task()

    def seed(self, jobs: int, kind: str = "noop") -> dict[str, Any]:
        """Not timed, so without fsync: the rows are the same."""
        self._huey.storage.conn.execute("PRAGMA synchronous = OFF")
        self._put(jobs, kind)
        self._huey.storage.conn.execute("PRAGMA synchronous = FULL")
        return {}

    def enqueue(self, jobs: int) -> dict[str, Any]:
        return span(lambda: self._put(jobs), jobs)

    def enqueue_concurrent(self, jobs: int, callers: int) -> dict[str, Any]:
        with ThreadPoolExecutor(callers) as pool:
            share = jobs // callers
            return span(lambda: list(pool.map(self._put, [share] * callers)), share * callers)

    def drain(self, jobs: int, threads: int, kind: str = "noop") -> dict[str, Any]:
        """A consumer with `threads` threads until every job's handler was called."""
        self._calls, self._wanted = 0, jobs
        self._reached.clear()
        consumer = self._consumer(threads, 0.001)
        cpu = time.process_time()
        consumer.start()
        started, before = time.monotonic(), self._calls
        self._announce("up")
        in_time = self._reached.wait(CALL_LIMIT_SECONDS)
        seconds = time.monotonic() - started
        spent = time.process_time() - cpu
        consumer.stop(graceful=True)
        if not in_time:
            raise TimeoutError(f"{self._calls} of {jobs} jobs within {CALL_LIMIT_SECONDS} s")
        return {"jobs": jobs - before, "seconds": seconds, "cpu": spent}

    def listen(self, poll: float, jobs: int) -> dict[str, Any]:
        """A consumer of one thread that polls every `poll` seconds, until `jobs` have arrived."""
        self._calls, self._wanted = 0, jobs
        self._reached.clear()
        self._arrivals = Arrivals()
        consumer = self._consumer(1, poll)
        consumer.start()
        self._announce("up")
        self._reached.wait(CALL_LIMIT_SECONDS)
        consumer.stop(graceful=True)
        return {"milliseconds": self._arrivals.milliseconds()}

    def trickle(self, jobs: int, gap: float) -> dict[str, Any]:
        return {"calls": trickle(self._stamp, jobs, gap)}

    def rows(self) -> dict[str, Any]:
        return {"waiting": self._huey.storage.queue_size(), "finished": None}

    def durability(self) -> dict[str, Any]:
        connection = self._huey.storage.conn
        level = connection.execute("PRAGMA synchronous").fetchone()[0]
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        return {"synchronous": LEVELS[level], "journal": journal}

    def close(self) -> None:
        self._huey.storage.close()

    def _consumer(self, threads: int, poll: float) -> Any:
        return self._huey.create_consumer(
            workers=threads,
            worker_type="thread",
            initial_delay=poll,
            max_delay=poll,
            backoff=1,
            periodic=False,
        )


def open_system(directory: Path, synchronous: str, announce: Announce) -> HueySystem:
    return HueySystem(directory, synchronous, announce)
