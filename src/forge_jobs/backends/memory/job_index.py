"""Indexes over jobs: pending ones by claim order, waiting ones by due time, ended ones by age.

Heaps are cleaned lazily: an entry whose stamp differs from its row's is void, and is dropped when
it reaches the front. Nothing here decides about a job.
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
    """All indexes of the memory backend over its jobs."""

    def __init__(self, jobs: dict[int, Row]) -> None:
        self._jobs = jobs
        self._pending: dict[tuple[str, str | None], list[_Pending]] = {}
        self._due: dict[str, list[_Timed]] = {}
        self._expiring: list[_Timed] = []
        self._ended: dict[tuple[str, JobStatus], list[_Timed]] = {}
        self.limit_buckets = LimitBuckets()
        self.running: dict[int, dict[int, None]] = {}

    def add(self, row: Row) -> None:
        """Index a row by its new state, after a transition."""
        status, key, stamp = row.status, row.key, row.stamp
        if status is JobStatus.RUNNING:
            assert row.owner is not None
            self.running.setdefault(row.owner, {})[key] = None
        elif status is JobStatus.PENDING:
            heap = self._pending.setdefault((row.queue, row.track), [])
            heapq.heappush(heap, (row.job.priority, row.run_at, key, stamp))
        elif status in TERMINAL:
            assert row.finished_at is not None
            ended = self._ended.setdefault((row.queue, status), [])
            heapq.heappush(ended, (row.finished_at, key, stamp))
        elif status is not JobStatus.HELD:
            heapq.heappush(self._due.setdefault(row.queue, []), (row.run_at, key, stamp))
        if row.expires_at is not None and status in WAITING:
            heapq.heappush(self._expiring, (row.expires_at, key, stamp))
        self.limit_buckets.add(row)

    def remove_entries(self, row: Row) -> None:
        """Remove a row from the indexes that are not cleaned lazily, before a transition."""
        if row.status is JobStatus.RUNNING and row.owner is not None:
            held = self.running[row.owner]
            del held[row.key]
            if not held:
                del self.running[row.owner]
        self.limit_buckets.remove(row)

    def tracks(self, queue: str) -> list[str]:
        """The tracks of a queue that may have pending jobs."""
        return sorted(track for name, track in self._pending if name == queue and track is not None)

    def first_pending(
        self, queue: str, kinds: Collection[str] = (), track: str | None = None
    ) -> Row | None:
        """The next pending job of a queue, by priority, due time and key.

        With ``kinds`` only of these kinds. With ``track`` only of that track; without it only jobs
        that have no track.
        """
        heap = self._pending.get((queue, track))
        if kinds:
            return self._first_of_kinds(heap or [], kinds)
        while heap:
            row = self._jobs.get(heap[0][2])
            if row is not None and row.stamp == heap[0][3]:
                return row
            heapq.heappop(heap)
        return None

    def first_due(self, queue: str) -> Row | None:
        """The scheduled or failed job of a queue that comes due first."""
        return self._first(self._due.get(queue))

    def first_expiring(self) -> Row | None:
        """The waiting job that expires first."""
        return self._first(self._expiring)

    def waiting_queues(self) -> list[str]:
        """Queues that may have scheduled or failed jobs."""
        return [queue for queue, heap in self._due.items() if heap]

    def ended(self, cutoff: Callable[[str, JobStatus], Instant | None]) -> Iterator[Row]:
        """Terminal jobs that finished no later than ``cutoff`` gives for their queue and state."""
        for (queue, status), heap in self._ended.items():
            latest = cutoff(queue, status)
            if latest is None:
                continue
            for finished_at, key, stamp in sorted(heap):
                if finished_at > latest:
                    break
                row = self._jobs.get(key)
                if row is not None and row.stamp == stamp:
                    yield row
            self._first(heap)

    def pending(self) -> Iterator[Row]:
        """Every pending job, in no particular order."""
        for heap in self._pending.values():
            for _, _, key, stamp in heap:
                row = self._jobs.get(key)
                if row is not None and row.stamp == stamp:
                    yield row

    def _first_of_kinds(self, heap: list[_Pending], kinds: Collection[str]) -> Row | None:
        for _, _, key, stamp in sorted(heap):
            row = self._jobs.get(key)
            if row is not None and row.stamp == stamp and row.job.kind in kinds:
                return row
        return None

    def _first(self, heap: list[_Timed] | None) -> Row | None:
        while heap:
            row = self._jobs.get(heap[0][1])
            if row is not None and row.stamp == heap[0][2]:
                return row
            heapq.heappop(heap)
        return None
