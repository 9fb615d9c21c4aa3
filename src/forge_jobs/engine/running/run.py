"""One claimed job in this process, from the claim to its outcome."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from forge_jobs.core.declaration import own_or_default_timeout_s
from forge_jobs.core.ids import job_id
from forge_jobs.core.instant import after, to_datetime
from forge_jobs.core.job import Claim, ClaimedJob, LogLine, NewJob, merge_options
from forge_jobs.core.outcome import AnyOutcome
from forge_jobs.store.jobs import Note

from .context import Context, JobInfo, RunEnvironment
from .registry import Handler

if TYPE_CHECKING:
    from forge_jobs.core.steps import ClaimedSteps
    from forge_jobs.engine.claiming.local_queue import LocalQueue
    from forge_jobs.engine.steps.handler_steps import HandlerSteps
    from forge_jobs.engine.steps.run_steps import RunSteps

    from .executors import Executor
    from .in_flight import InFlightJobs

MAX_LINES = 1_000
NEVER = float("inf")

# Handlers in threads add notes while the job loop takes them.
_NOTES_LOCK = threading.Lock()


class StopReason(Enum):
    """Why a running handler should end; the values are the texts that handlers read."""

    TIMEOUT = "timed out"
    CANCEL = "cancelled"
    LOST = "this worker lost its lease"
    SHUTDOWN = "the worker is stopping"


class RunState(Enum):
    """The state of a run. ``COMMITTING``: its handler has ended, and the transaction of its last
    step is awaited. ``FINISHED``: its handler has ended, or it was released before its start.
    ``LOST``: its handler still runs or its transaction is awaited, but the claim is gone."""

    READY = 1
    RUNNING = 2
    FINISHED = 3
    LOST = 4
    COMMITTING = 5


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a handler, as its executor reports it.

    ``result`` is the encoded value of a success. ``explicit``: the handler itself chose this
    outcome by returning or raising it, so that it counts even after the handler was told to end.
    """

    outcome: AnyOutcome
    result: bytes | None = None
    explicit: bool = False


class RunNotes:
    """Progress and log lines of a handler since the last exchange."""

    __slots__ = ("lines", "note", "progress")

    def __init__(self) -> None:
        self.progress: float | None = None
        self.note: str | None = None
        self.lines: list[LogLine] = []


# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_READY = RunState.READY


class Run:
    """A claimed job in this process. Executors read it and report its outcome.

    ``claimed_at``, ``started_at``, ``finished_at`` and ``deadline`` are seconds on
    ``clock.mono()``; ``deadline`` is infinite without a timeout; an executor that knows the exact
    end sets ``finished_at``. ``stop`` is set once the handler was told to end. ``executor`` and
    ``launch`` say where it runs (``launch`` None: a slot task of the loop pulls it).
    ``keeps_slot``: its slot stays in use until the store has answered its finish.
    ``recording_cancel``: a cancel request is being written, and the finish waits for it.
    ``steps``: what came with the claim, until the handler uses its steps; None for most jobs.
    """

    __slots__ = (
        "claimed_at", "deadline", "executor", "finished_at", "handler", "in_flight", "job",
        "keeps_slot", "launch", "line_count", "local_queue", "notes", "recording_cancel",
        "slot_task", "started_at", "state", "steps", "stop", "successors",
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
        self.finished_at = 0.0
        self.deadline = NEVER
        self.state = _READY
        self.stop: StopReason | None = None
        self.executor: Executor | None = None
        self.launch: Callable[[Run], None] | None = None
        self.slot_task: object = None
        self.keeps_slot = False
        self.successors: list[NewJob] | None = None
        self.notes: RunNotes | None = None
        self.line_count = 0
        self.recording_cancel = False
        self.steps: RunSteps | ClaimedSteps | None = job.steps

    @property
    def id(self) -> str:
        """The job's public id."""
        return job_id(self.job.key, self.job.enqueued_at, self.in_flight.environment.tag)

    def log_fields(self) -> dict[str, object]:
        """The fields of records that are logged while this job runs."""
        job = self.job
        return {
            "job_id": self.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempts
        }  # fmt: skip

    @property
    def timeout_s(self) -> float | None:
        """The job's own time limit, else its handler's."""
        job = self.job
        return own_or_default_timeout_s(job.timeout_s, job.options, self.handler.timeout_s)

    @property
    def options(self) -> Mapping[str, Any] | None:
        """The job's rare options, on top of its handler's."""
        return merge_options(self.handler.options, self.job.options)

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should end now; None while it may continue."""
        return None if self.stop is None else self.stop.value

    def is_plain(self) -> bool:
        """Whether a success of this run needs no more than the event "done"."""
        return (
            self.stop is None
            and self.steps is None
            and self.successors is None
            and self.notes is None
            and not self.recording_cancel
        )

    def make_context(self) -> Context:
        """The context for this run's handler."""
        environment = self.in_flight.environment
        return Context(
            JobInfo.of(self.job, environment.tag),
            self,
            environment,
            deadline=self._deadline_at(environment),
        )

    def handler_steps(self) -> "HandlerSteps":
        """The handler's side of this run's steps."""
        made = getattr(self.steps, "handler_side", None)
        if made is not None:
            return made
        from forge_jobs.engine.steps.step_outcome import handler_steps_of

        return handler_steps_of(self)

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The arguments of a restart, checked against the handler's signature."""
        return self.handler.payload_of(args, kwargs)

    def report(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        """Keep progress and log lines for the next exchange. May be called from any thread."""
        if self.state is not RunState.RUNNING:
            return
        with _NOTES_LOCK:
            if line is not None:
                self.line_count += 1
                if self.line_count > MAX_LINES:
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
            self.in_flight.add_notes(self)

    def take_notes(self) -> Note | None:
        """The notes since the last call, as the store takes them."""
        with _NOTES_LOCK:
            notes, self.notes = self.notes, None
        if notes is None:
            return None
        claim = Claim(self.job.key, self.job.epoch)
        return Note(claim, notes.progress, notes.note, tuple(notes.lines))

    def add_successor(self, job: NewJob) -> None:
        """Store ``job`` in the transaction that finishes this run as done."""
        if self.successors is None:
            self.successors = []
        self.successors.append(job)

    def _deadline_at(self, environment: RunEnvironment) -> datetime | None:
        if self.deadline == NEVER:
            return None
        left_s = self.deadline - environment.clock.mono()
        return to_datetime(after(environment.clock.now(), left_s))


OnRunFinish = Callable[[Run, RunOutcome], None]
