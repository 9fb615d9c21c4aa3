"""What one transaction adds to the books: numbers of jobs by state, and what happened per minute.

Changes are gathered here and written once at the end of the transaction, however many jobs moved.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from forge_jobs.backends.sqltext import SqlText
from forge_jobs.core.instant import MINUTE, Instant
from forge_jobs.core.status import JobStatus

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "books.sql")
Execute = Callable[..., Any]

_ADD_COUNTS: Final = SQL["add_counts"]
_ADD_MINUTES: Final = SQL["add_minutes"]
_ENQUEUED, _DONE, _RETRIED, _DEAD, _CANCELLED, _RAN = range(6)
_COLUMN: Final = {
    JobStatus.DONE: _DONE,
    JobStatus.FAILED: _RETRIED,
    JobStatus.DEAD: _DEAD,
    JobStatus.CANCELLED: _CANCELLED,
}
_encode = msgspec.json.encode


class Books:
    """The entries of one transaction, all made in the same minute unless said otherwise."""

    __slots__ = ("_counts", "_minute", "_minutes")

    def __init__(self, now: Instant) -> None:
        self._minute = now - now % MINUTE
        self._counts: dict[tuple[str, str, str], int] = {}
        self._minutes: dict[tuple[Instant, str, str], list[float]] = {}

    def entered(
        self, queue: str, kind: str, status: str, jobs: int = 1, minute: Instant | None = None
    ) -> None:
        """Jobs came into being in this state."""
        self._add(queue, kind, status, jobs)
        self._sums(queue, kind, minute)[_ENQUEUED] += jobs

    def moved(
        self, queue: str, kind: str, source: JobStatus, target: JobStatus, jobs: int = 1
    ) -> None:
        """Jobs went from one state to another."""
        self._add(queue, kind, source, -jobs)
        self._add(queue, kind, target, jobs)
        column = _COLUMN.get(target)
        if column is not None:
            self._sums(queue, kind)[column] += jobs

    def removed(self, queue: str, kind: str, status: str) -> None:
        """A job was deleted; what happened in its minutes stays."""
        self._add(queue, kind, status, -1)

    def lost(self, queue: str, kind: str) -> None:
        """A started job was taken from a dead owner and will be tried again."""
        self._sums(queue, kind)[_RETRIED] += 1

    def ran(self, queue: str, kind: str, seconds: float) -> None:
        """Handlers ran for that long."""
        if seconds:
            self._sums(queue, kind)[_RAN] += seconds

    def write(self, execute: Execute) -> None:
        """Bring everything into the tables: at most two statements."""
        if self._counts:
            counts = [(*name, jobs) for name, jobs in self._counts.items() if jobs]
            if counts:
                execute(_ADD_COUNTS, (_encode(counts).decode(),))
        if self._minutes:
            minutes = [(*name, *sums) for name, sums in self._minutes.items()]
            execute(_ADD_MINUTES, (_encode(minutes).decode(),))

    def _add(self, queue: str, kind: str, status: str, jobs: int) -> None:
        name = (queue, kind, status)
        self._counts[name] = self._counts.get(name, 0) + jobs

    def _sums(self, queue: str, kind: str, minute: Instant | None = None) -> list[float]:
        name = (self._minute if minute is None else minute, queue, kind)
        sums = self._minutes.get(name)
        if sums is None:
            sums = self._minutes[name] = [0, 0, 0, 0, 0, 0.0]
        return sums
