"""One claim on its way through this process: from the claim to its ending."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from forge_jobs.core.ids import job_id
from forge_jobs.core.instant import after, to_datetime
from forge_jobs.core.job import Claim, ClaimedJob, LogLine, NewJob
from forge_jobs.core.outcome import AnyOutcome
from forge_jobs.store.jobs import Note

from .context import Context, JobInfo, RunEnvironment
from .registry import Handler

if TYPE_CHECKING:
    from forge_jobs.engine.claiming.local_queue import LocalQueue

    from .executors import Executor
    from .in_flight import InFlightJobs

MAX_LINES = 1_000
NEVER = float("inf")

# Handlers in threads add lines while the loop takes them.
_SAYING = threading.Lock()


class StopReason(Enum):
    """Why a running handler is told to end; the values are what the handler reads."""

    TIMEOUT = "timed out"
    CANCEL = "cancelled"
    LOST = "this worker lost its lease"
    SHUTDOWN = "the worker is stopping"


class RunState(Enum):
    """Where a run stands in this process."""

    READY = 1
    RUNNING = 2
    ENDED = 3
    LOST = 4


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a handler ended, as its executor saw it.

    ``result`` is the encoded value of a success. ``explicit``: the handler itself chose this
    outcome by returning or raising it, so it stands even when the handler had been told to end.
    """

    outcome: AnyOutcome
    result: bytes | None = None
    explicit: bool = False


class RunNotes:
    """What a handler said since the last exchange."""

    __slots__ = ("lines", "note", "progress")

    def __init__(self) -> None:
        self.progress: float | None = None
        self.note: str | None = None
        self.lines: list[LogLine] = []


# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_READY = RunState.READY


class Run:
    """A claimed job in this process. Executors read it and report its ending; they change nothing.

    ``claimed_at``, ``started_at``, ``ended_at`` and ``deadline`` are seconds on ``clock.mono()``;
    ``deadline`` is infinite without a timeout; an executor that knows the exact end sets
    ``ended_at``. ``stop`` is set once the handler was told to end. ``executor`` and ``launch`` say
    which executor runs it (``launch`` None: a slot of the loop fetches it). ``unit``: it keeps its
    place in the queue's slots until the store has judged it.
    """

    __slots__ = (
        "carried", "claimed_at", "deadline", "ended_at", "executor", "handler", "in_flight", "job",
        "launch", "local_queue", "notes", "recording", "said", "slot", "started_at", "state",
        "stop", "unit",
    )  # fmt: skip

    def __init__(
        self,
        job: ClaimedJob,
        handler: Handler,
        in_flight: "InFlightJobs",
        local_queue: "LocalQueue",
        claimed_at: float,
    ) -> None:
        self.job = job
        self.handler = handler
        self.in_flight = in_flight
        self.local_queue = local_queue
        self.claimed_at = claimed_at
        self.started_at = claimed_at
        self.ended_at = 0.0
        self.deadline = NEVER
        self.state = _READY
        self.stop: StopReason | None = None
        self.executor: Executor | None = None
        self.launch: Callable[[Run], None] | None = None
        self.slot: object = None
        self.unit = False
        self.carried: list[NewJob] | None = None
        self.notes: RunNotes | None = None
        self.said = 0
        self.recording = False

    @property
    def id(self) -> str:
        """The job's public id."""
        return job_id(self.job.key, self.job.enqueued_at, self.in_flight.environment.tag)

    @property
    def timeout_s(self) -> float | None:
        """The job's own time limit, else its handler's."""
        own = self.job.timeout_s
        return self.handler.timeout_s if own is None else own

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should end now."""
        return None if self.stop is None else self.stop.value

    def is_plain(self) -> bool:
        """Whether a success of this run carries nothing but the fact."""
        return (
            self.stop is None and self.carried is None and self.notes is None and not self.recording
        )

    def make_context(self) -> Context:
        """The context for this run's handler."""
        around = self.in_flight.environment
        return Context(
            JobInfo.of(self.job, around.tag), self, around, deadline=self._deadline_at(around)
        )

    def say(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        """Keep progress and lines for the next exchange; from any thread."""
        if self.state is not RunState.RUNNING:
            return
        with _SAYING:
            if line is not None:
                self.said += 1
                if self.said > MAX_LINES:
                    return
            notes = self.notes
            fresh = notes is None
            if notes is None:
                notes = self.notes = RunNotes()
            if progress is not None:
                notes.progress, notes.note = progress, note
            if line is not None:
                notes.lines.append(line)
        if fresh:
            self.in_flight.noted(self)

    def take_notes(self) -> Note | None:
        """What was said since the last time, as the store wants it."""
        with _SAYING:
            notes, self.notes = self.notes, None
        if notes is None:
            return None
        claim = Claim(self.job.key, self.job.epoch)
        return Note(claim, notes.progress, notes.note, tuple(notes.lines))

    def carry(self, job: NewJob) -> None:
        """Enqueue ``job`` in the transaction that records this run's success."""
        if self.carried is None:
            self.carried = []
        self.carried.append(job)

    def _deadline_at(self, around: RunEnvironment) -> datetime | None:
        if self.deadline == NEVER:
            return None
        left_s = self.deadline - around.clock.mono()
        return to_datetime(after(around.clock.now(), left_s))


OnRunEnd = Callable[[Run, RunOutcome], None]
