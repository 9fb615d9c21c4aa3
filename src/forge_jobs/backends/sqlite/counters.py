"""What one transaction adds to the books: numbers of jobs by state, and what happened per minute.

Changes are gathered here and written once at the end of the transaction, however many jobs moved:
numbers in place, everything else as one line of the ledger (see ``roll``).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.counters import Minute
from forge_jobs.core.decide import Finish
from forge_jobs.core.histogram import EMPTY, histogram
from forge_jobs.core.instant import MINUTE, SECOND, Instant
from forge_jobs.core.status import Event, JobStatus

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "counters.sql")
Execute = Callable[..., Any]

_ADD_COUNTS: Final = SQL["add_counts"]
_ADD_LINE: Final = SQL["add_line"]
_encode = msgspec.json.encode

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _PENDING, _SCHEDULED = JobStatus.RUNNING, JobStatus.PENDING, JobStatus.SCHEDULED
_HELD, _DONE, _FAILED = JobStatus.HELD, JobStatus.DONE, JobStatus.FAILED
_DEAD, _CANCELLED, _MISSING = JobStatus.DEAD, JobStatus.CANCELLED, Event.MISSING
_DONE_EVENT: Final = Event.DONE


class _Part:
    """What happened to one queue and kind."""

    __slots__ = (
        "cancelled", "dead", "done", "enqueued", "ran", "released", "retried", "started",
        "throttled", "took", "waited",
    )  # fmt: skip

    def __init__(self) -> None:
        self.enqueued = self.started = self.done = self.retried = self.dead = 0
        self.cancelled = self.throttled = self.released = 0
        self.waited: list[float] = []
        self.ran: list[float] = []
        self.took: list[float] = []

    def minute(self, at: Instant, queue: str, kind: str) -> Minute:
        return Minute(
            at=at,
            queue=queue,
            kind=kind,
            enqueued=self.enqueued,
            started=self.started,
            done=self.done,
            retried=self.retried,
            dead=self.dead,
            cancelled=self.cancelled,
            throttled=self.throttled,
            released=self.released,
            waited=histogram(self.waited) if self.waited else EMPTY,
            ran=histogram(self.ran) if self.ran else EMPTY,
            took=histogram(self.took) if self.took else EMPTY,
        )


class Counters:
    """The entries of one transaction, all made in the same minute unless said otherwise."""

    __slots__ = ("_counts", "_minute", "_now", "_parts")

    def __init__(self, now: Instant) -> None:
        self._now = now
        self._minute = now - now % MINUTE
        self._counts: dict[tuple[str, str, str], int] = {}
        self._parts: dict[tuple[Instant, str, str], _Part] = {}

    def entered(
        self, queue: str, kind: str, status: str, jobs: int = 1, minute: Instant | None = None
    ) -> None:
        """Jobs came into being in this state."""
        self._add(queue, kind, status, jobs)
        self._part(queue, kind, minute).enqueued += jobs

    def moved(
        self, queue: str, kind: str, source: JobStatus, target: JobStatus, jobs: int = 1
    ) -> None:
        """Jobs went from one state to another; a running one that waits again was handed back,
        unless ``lost`` or ``throttled`` says otherwise."""
        self._add(queue, kind, source, -jobs)
        self._add(queue, kind, target, jobs)
        if target is _RUNNING:
            self._part(queue, kind).started += jobs
        elif target is _DONE:
            self._part(queue, kind).done += jobs
        elif target is _FAILED:
            self._part(queue, kind).retried += jobs
        elif target is _DEAD:
            self._part(queue, kind).dead += jobs
        elif target is _CANCELLED:
            self._part(queue, kind).cancelled += jobs
        elif source is _RUNNING and target in (_PENDING, _SCHEDULED, _HELD):
            self._part(queue, kind).released += jobs

    def removed(self, queue: str, kind: str, status: str) -> None:
        """A job was deleted; what happened in its minutes stays."""
        self._add(queue, kind, status, -1)

    def lost(self, queue: str, kind: str) -> None:
        """The started job that just moved was taken from a dead owner and will be tried again."""
        part = self._part(queue, kind)
        part.released -= 1
        part.retried += 1

    def throttled(self, queue: str, kind: str) -> None:
        """The job that just moved was told to come back later."""
        part = self._part(queue, kind)
        part.released -= 1
        part.throttled += 1

    def ended(self, queue: str, kind: str, ends: Sequence[Finish]) -> None:
        """Workers told the ends of runs, and how long everything took."""
        part, now = self._part(queue, kind), self._now
        part.waited += [end.waited_s for end in ends if end.event is not _MISSING]
        part.ran += [end.ran_s for end in ends if end.event is not _MISSING]
        part.took += [(now - end.enqueued_at) / SECOND for end in ends if end.event is _DONE_EVENT]

    def write(self, execute: Execute) -> int:
        """Bring everything into the tables: at most two statements. The number of the line, 0
        without one."""
        if self._counts:
            counts = [(*name, jobs) for name, jobs in self._counts.items() if jobs]
            if counts:
                execute(_ADD_COUNTS, (_encode(counts).decode(),))
        if not self._parts:
            return 0
        told = [part.minute(*name) for name, part in self._parts.items()]
        return execute(_ADD_LINE, (_encode(told).decode(),)).lastrowid

    def _add(self, queue: str, kind: str, status: str, jobs: int) -> None:
        name = (queue, kind, status)
        self._counts[name] = self._counts.get(name, 0) + jobs

    def _part(self, queue: str, kind: str, minute: Instant | None = None) -> _Part:
        name = (self._minute if minute is None else minute, queue, kind)
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _Part()
        return part
