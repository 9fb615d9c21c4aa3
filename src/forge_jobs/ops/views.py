"""The read models: frozen, ready to print, and the same as JSON on every surface.

Moments are aware datetimes (RFC 3339 in JSON), durations are seconds and end in ``_s``.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.redact import prose

Counts = Mapping[JobStatus, int]


class View(Struct, frozen=True, kw_only=True):
    """Anything that is shown."""

    def to_json(self) -> bytes:
        """The view as one JSON object."""
        return msgspec.json.encode(self)


class Reason(View, frozen=True, kw_only=True):
    """Why a job is not running, or why a queue stands still. ``code`` is stable."""

    code: str
    text: str
    until: datetime | None = None
    remedy: str | None = None


class QueueView(View, frozen=True, kw_only=True):
    """A queue with its settings, its counts and who serves it.

    ``configured`` is False for a queue that has jobs but no settings yet. ``slots`` is what
    operators allow over the cluster, ``slots_live`` what living workers have taken up.
    ``scopes_closed`` are throttles of scopes that tasks of the queue declare; its other tasks
    go on.
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
    """A living worker process."""

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
    """What happened within one minute, over all kinds; ``mean_run_s`` and the percentiles (within
    7 %) are those of the runs that ended in it."""

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
    """The whole store at a glance."""

    at: datetime
    store: Mapping[str, str]
    counts: Counts
    lag_s: float
    queues: tuple[QueueView, ...]
    workers: tuple[WorkerView, ...]
    minutes: tuple[MinuteView, ...]


class JobLine(View, frozen=True, kw_only=True):
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


class JobsPage(View, frozen=True, kw_only=True):
    """One page of jobs, newest first; ``next`` is the cursor of the following page. ``stopped``:
    few jobs match, and one look goes through a bounded number of them; ``next`` looks further.
    ``looked``: at how many."""

    jobs: tuple[JobLine, ...]
    next: str | None
    stopped: bool = False
    looked: int = 0


class ErrorView(View, frozen=True, kw_only=True):
    """One failed attempt."""

    at: datetime
    attempt: int
    message: str


class LogView(View, frozen=True, kw_only=True):
    """One line a handler wrote."""

    at: datetime
    level: str
    message: str


class JobView(View, frozen=True, kw_only=True):
    """Everything about one job. Payload fields with secret-looking names may be hidden."""

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


def moment(instant: Instant | None) -> datetime | None:
    """The datetime of an instant that may be absent."""
    return None if instant is None else to_datetime(instant)


def job_line(record: JobRecord) -> JobLine:
    """A record as a line of a list."""
    return JobLine(
        id=record.id,
        kind=record.kind,
        queue=record.queue,
        status=record.status,
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        enqueued_at=to_datetime(record.enqueued_at),
        run_at=to_datetime(record.run_at),
        started_at=moment(record.started_at),
        finished_at=moment(record.finished_at),
        last_error=None if record.last_error is None else prose(record.last_error),
        progress=record.progress,
        tags=record.tags,
    )


def to_json(value: object) -> bytes:
    """JSON of a view or of a plain collection of views."""
    return msgspec.json.encode(value)
