"""Read models: frozen structs with the same JSON on the command line and over HTTP.

Times are aware datetimes (RFC 3339 in JSON), durations are seconds and end in ``_s``. A column of
the jobs page starts here: a field of ``JobSummary``, set in ``job_summary``.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from forge_jobs.core.instant import SECOND, Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.redact import prose

MAX_ARGUMENTS: Final = 200
_MAX_PAYLOAD_SHOWN: Final = 8 << 10

Counts = Mapping[JobStatus, int]


class View(Struct, frozen=True, kw_only=True):
    """Base of the read models."""

    def to_json(self) -> bytes:
        """The view as one JSON object."""
        return msgspec.json.encode(self)


class Reason(View, frozen=True, kw_only=True):
    """Why a job is not running, or why a queue starts no jobs. ``code`` is stable."""

    code: str
    text: str
    until: datetime | None = None
    remedy: str | None = None


class QueueView(View, frozen=True, kw_only=True):
    """A queue with its settings, counts and workers.

    ``configured`` is False for a queue that has jobs but no settings yet. ``slots`` is the
    cluster-wide number, ``slots_live`` the slots that live workers use. ``scopes_closed`` are
    closed scopes that some tasks of the queue declare; its other tasks still start.
    """

    name: str
    configured: bool
    slots: int
    slots_live: int
    workers: int
    paused: bool
    throttled_until: datetime | None
    counts: Counts
    lag_s: float
    backoff_enabled: bool
    backoff_base_s: float
    backoff_max_s: float
    retain_done_s: float | None
    retain_dead_s: float | None
    retain_cancelled_s: float | None
    blocks: tuple[Reason, ...] = ()
    scopes_closed: tuple[Reason, ...] = ()


class WorkerView(View, frozen=True, kw_only=True):
    """A live worker process."""

    host_id: str
    label: str
    hostname: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: Mapping[str, int]
    running: int
    memory_bytes: int
    cores: float
    disk_share: float
    quiet: bool
    started_at: datetime
    beat_at: datetime
    beat_age_s: float
    lease_s: float


class MinuteView(View, frozen=True, kw_only=True):
    """Counters of one minute over all kinds; ``mean_run_s`` and the percentiles (within 7 %) are
    of the runs that ended in it."""

    at: datetime
    enqueued: int
    started: int
    done: int
    retried: int
    dead: int
    cancelled: int
    throttled: int
    mean_run_s: float | None
    run_p95_s: float | None
    wait_p95_s: float | None


class Overview(View, frozen=True, kw_only=True):
    """Counts, queues, workers and recent minutes of a store."""

    at: datetime
    store: Mapping[str, str]
    counts: Counts
    lag_s: float
    queues: tuple[QueueView, ...]
    workers: tuple[WorkerView, ...]
    minutes: tuple[MinuteView, ...]


class JobSummary(View, frozen=True, kw_only=True):
    """A job in a list."""

    id: str
    kind: str
    queue: str
    status: JobStatus
    priority: int
    attempts: int
    max_attempts: int
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    progress: float | None
    tags: tuple[str, ...]
    arguments: Annotated[
        str,
        Meta(
            description="The payload as JSON in one line, secrets redacted, cut after "
            f"{MAX_ARGUMENTS} characters; of a payload above 8 KiB only its size."
        ),
    ]
    ran_s: float | None


class JobsPage(View, frozen=True, kw_only=True):
    """One page of jobs, newest first; ``next`` is the cursor of the following page. ``stopped``:
    the page is short because one call reads a bounded number of jobs; ``next`` continues.
    ``looked``: how many jobs were read."""

    jobs: tuple[JobSummary, ...]
    next: str | None
    stopped: bool = False
    looked: int = 0


class ErrorView(View, frozen=True, kw_only=True):
    """One failed attempt."""

    at: datetime
    attempt: int
    message: str
    traceback: Annotated[
        str | None,
        Meta(
            description="The formatted traceback of the exception, or the last output of the "
            "program that ran the job: at most 16 KiB, both ends kept, secrets redacted."
        ),
    ] = None
    group: Annotated[str | None, Meta(description="The id of its error group.")] = None


class LogView(View, frozen=True, kw_only=True):
    """One log line of a handler."""

    at: datetime
    level: str
    message: str


class WaitView(View, frozen=True, kw_only=True):
    """A suspended job and one event that it waits for. ``key`` is empty for events without a key,
    and the job's id for events that are sent to this job. ``deadline`` None: for ever. ``command``
    sends the event."""

    job_id: str
    kind: str
    queue: str
    name: str
    key: str
    step: str
    began_at: datetime
    deadline: datetime | None
    command: str


class JobView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about one job. Payload fields with secret-looking names may be redacted.

    ``options`` are its rare options, by their names in the store; left out when it has none.
    ``waits`` are the events that a suspended job waits for; left out for other jobs.
    """

    id: str
    kind: str
    queue: str
    status: JobStatus
    why: tuple[Reason, ...]
    payload: Any
    result: Any
    priority: int
    attempts: int
    max_attempts: int
    crashes: int
    throttles: int
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    cancel_requested_at: datetime | None
    timeout_s: float | None
    ran_s: float | None
    progress: float | None
    progress_note: str | None
    last_error: str | None
    errors: tuple[ErrorView, ...]
    logs: tuple[LogView, ...]
    worker: str | None
    tags: tuple[str, ...]
    dedupe_key: str | None
    lane: str | None
    limit_key: str | None
    trace: str | None
    options: Mapping[str, Any] = {}
    waits: tuple[WaitView, ...] = ()


def optional_datetime(instant: Instant | None) -> datetime | None:
    """Convert an instant to a datetime; None stays None."""
    return None if instant is None else to_datetime(instant)


def job_summary(record: JobRecord) -> JobSummary:
    """The summary of a record."""
    return JobSummary(
        id=record.id,
        kind=record.kind,
        queue=record.queue,
        status=record.status,
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        enqueued_at=to_datetime(record.enqueued_at),
        run_at=to_datetime(record.run_at),
        started_at=optional_datetime(record.started_at),
        finished_at=optional_datetime(record.finished_at),
        last_error=None if record.last_error is None else prose(record.last_error),
        progress=record.progress,
        tags=record.tags,
        arguments=arguments_line(record.payload),
        ran_s=ran_s(record),
    )


def ran_s(record: JobRecord) -> float | None:
    """How long the last run took, in seconds; None before its end."""
    if record.started_at is None or record.finished_at is None:
        return None
    return max(record.finished_at - record.started_at, 0) / SECOND


def arguments_line(payload: bytes) -> str:
    """A payload in one line, as people see it: redacted, and cut."""
    if len(payload) > _MAX_PAYLOAD_SHOWN:
        return f"{len(payload) / 1024:,.0f} KiB"
    shown = redact.value(msgspec.json.decode(payload))
    text = msgspec.json.encode(shown).decode()
    return text if len(text) <= MAX_ARGUMENTS else f"{text[: MAX_ARGUMENTS - 1]}…"


def to_json(value: object) -> bytes:
    """JSON of a view or of a plain collection of views."""
    return msgspec.json.encode(value)
