"""The lines jobs stand in: pending by order of claim, waiting by due time, ended by age.

Heaps are cleaned lazily: an entry whose stamp is not its row's any more is void and dropped when it
comes to the front. Nothing here decides about a job.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from forge_jobs.core.instant import Instant
from forge_jobs.core.status import TERMINAL, WAITING, JobStatus

from .limit_buckets import LimitBuckets
from .rows import Row

_Pending: TypeAlias = "tuple[int, Instant, int, int]"
_Timed: TypeAlias = "tuple[Instant, int, int]"


class JobIndex:
    """Every index of the memory backend over its jobs."""

    def __init__(self, jobs: dict[int, Row]) -> None:
        self._jobs = jobs
        self._pending: dict[tuple[str, str | None], list[_Pending]] = {}
        self._due: dict[str, list[_Timed]] = {}
        self._expiring: list[_Timed] = []
        self._ended: dict[tuple[str, JobStatus], list[_Timed]] = {}
        self.lots = LimitBuckets()
        self.running: dict[int, dict[int, None]] = {}

    def place(self, row: Row) -> None:
        """Put a row that has just been moved where it now belongs."""
        status, key, stamp = row.status, row.key, row.stamp
        if status is JobStatus.RUNNING:
            assert row.owner is not None
            self.running.setdefault(row.owner, {})[key] = None
        elif status is JobStatus.PENDING:
            line = self._pending.setdefault((row.queue, row.track), [])
            heapq.heappush(line, (row.job.priority, row.run_at, key, stamp))
        elif status in TERMINAL:
            assert row.finished_at is not None
            ended = self._ended.setdefault((row.queue, status), [])
            heapq.heappush(ended, (row.finished_at, key, stamp))
        elif status is not JobStatus.HELD:
            heapq.heappush(self._due.setdefault(row.queue, []), (row.run_at, key, stamp))
        if row.expires_at is not None and status in WAITING:
            heapq.heappush(self._expiring, (row.expires_at, key, stamp))
        self.lots.enter(row)

    def withdraw(self, row: Row) -> None:
        """Take a row out of the lines that are not cleaned lazily, before it is moved."""
        if row.status is JobStatus.RUNNING and row.owner is not None:
            held = self.running[row.owner]
            del held[row.key]
            if not held:
                del self.running[row.owner]
        self.lots.leave(row)

    def tracks(self, queue: str) -> list[str]:
        """The tracks of a queue that may have jobs."""
        return sorted(track for name, track in self._pending if name == queue and track is not None)

    def first_pending(
        self, queue: str, kinds: Collection[str] = (), track: str | None = None
    ) -> Row | None:
        """The next job of a queue's line, of these kinds if any are named, by priority, due time
        and key; ``track`` names another line than the queue's own."""
        line = self._pending.get((queue, track))
        if kinds:
            return self._first_of(line or [], kinds)
        while line:
            row = self._jobs.get(line[0][2])
            if row is not None and row.stamp == line[0][3]:
                return row
            heapq.heappop(line)
        return None

    def first_due(self, queue: str) -> Row | None:
        """The scheduled or failed job of a queue that comes due first."""
        return self._first(self._due.get(queue))

    def first_expiring(self) -> Row | None:
        """The waiting job that expires first."""
        return self._first(self._expiring)

    def waiting_queues(self) -> list[str]:
        """Queues that may have scheduled or failed jobs."""
        return [queue for queue, line in self._due.items() if line]

    def ended(self, now_minus: Callable[[str, JobStatus], Instant | None]) -> Iterator[Row]:
        """Ended jobs that finished no later than ``now_minus`` says for their queue and state."""
        for (queue, status), line in self._ended.items():
            latest = now_minus(queue, status)
            if latest is None:
                continue
            for finished_at, key, stamp in sorted(line):
                if finished_at > latest:
                    break
                row = self._jobs.get(key)
                if row is not None and row.stamp == stamp:
                    yield row
            self._first(line)

    def pending(self) -> Iterator[Row]:
        """Every pending job, in no particular order."""
        for line in self._pending.values():
            for _, _, key, stamp in line:
                row = self._jobs.get(key)
                if row is not None and row.stamp == stamp:
                    yield row

    def _first_of(self, line: list[_Pending], kinds: Collection[str]) -> Row | None:
        for _, _, key, stamp in sorted(line):
            row = self._jobs.get(key)
            if row is not None and row.stamp == stamp and row.job.kind in kinds:
                return row
        return None

    def _first(self, line: list[_Timed] | None) -> Row | None:
        while line:
            row = self._jobs.get(line[0][1])
            if row is not None and row.stamp == line[0][2]:
                return row
            heapq.heappop(line)
        return None
