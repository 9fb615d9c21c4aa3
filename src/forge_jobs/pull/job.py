"""The Job of a pull queue and its status, in the words of pull queues."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from forge_jobs.core import payload
from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.job import ClaimedJob, JobRecord
from forge_jobs.core.status import TERMINAL
from forge_jobs.core.status import JobStatus as StoredStatus


class JobStatus(StrEnum):
    """The status of a job. ``failed``: an attempt failed and the job waits for its retry.

    >>> queue.get(queue.enqueue("resize")).status is pull.JobStatus.PENDING
    True
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"


STATUS_OF_STATE: Final = {
    StoredStatus.SCHEDULED: JobStatus.PENDING,
    StoredStatus.PENDING: JobStatus.PENDING,
    StoredStatus.HELD: JobStatus.PENDING,
    StoredStatus.RUNNING: JobStatus.RUNNING,
    StoredStatus.FAILED: JobStatus.FAILED,
    StoredStatus.DONE: JobStatus.COMPLETED,
    StoredStatus.DEAD: JobStatus.DEAD,
    StoredStatus.CANCELLED: JobStatus.CANCELLED,
}


class Signals:
    """What has happened to a claim while its handler runs.

    ``started_at`` is by the monotonic clock, 0 for a job that was only read. ``in_doubt``: a finish
    was sent and its reply was lost, so it may be written.
    """

    __slots__ = ("cancelled", "in_doubt", "lost", "started_at")

    def __init__(self) -> None:
        self.started_at = 0.0
        self.cancelled = False
        self.lost = False
        self.in_doubt = False


class Job(Struct, frozen=True, kw_only=True, eq=False):
    """A job as it was when ``dequeue`` claimed it or ``get`` read it.

    ``id``, ``type`` and ``payload`` say what to do. ``attempts`` counts the attempts that were
    started, the running one included. ``lease_until`` is when the lease ends without a heartbeat.
    ``result`` and ``error`` are those of a job that has ended; ``traceback`` is that of its last
    failed attempt, read by ``get``. ``claim`` is the right to finish the job; a job from ``get``
    has none.

    >>> job_id = queue.enqueue("resize", {"path": "a.png"})
    >>> job = queue.dequeue(["resize"])
    >>> job.payload, job.attempts
    ({'path': 'a.png'}, 1)
    """

    id: str
    type: str
    payload: Any
    status: JobStatus
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    scheduled_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    result: Any = None
    error: str | None = None
    traceback: str | None = None
    owner: int | None = None
    lease_until: datetime | None = None
    progress: float | None = None
    stage: str | None = None
    dedupe_key: str | None = None
    claim: ClaimedJob | None = None
    signals: Signals

    @property
    def stop_requested(self) -> bool:
        """Whether the handler should stop: the job was cancelled, or its lease was lost."""
        return self.signals.cancelled or self.signals.lost

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.status} {self.attempts}/{self.max_attempts}>"


def from_claim(
    claim: ClaimedJob, *, job_id: str, owner: int, now: Instant, lease_until: Instant
) -> Job:
    """The Job for a new claim."""
    return Job(
        id=job_id,
        type=claim.kind,
        payload=payload.decode(claim.payload),
        status=JobStatus.RUNNING,
        priority=claim.priority,
        attempts=claim.attempts,
        max_attempts=claim.max_attempts,
        created_at=to_datetime(claim.enqueued_at),
        scheduled_at=to_datetime(claim.run_at),
        started_at=to_datetime(now),
        owner=owner,
        lease_until=to_datetime(lease_until),
        claim=claim,
        signals=Signals(),
    )


def from_record(record: JobRecord) -> Job:
    """The Job for a record; it has no claim."""
    signals = Signals()
    signals.cancelled = record.cancel_requested_at is not None
    return Job(
        id=record.id,
        type=record.kind,
        payload=payload.decode(record.payload),
        status=status_of(record),
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        created_at=to_datetime(record.enqueued_at),
        scheduled_at=to_datetime(record.run_at),
        started_at=_datetime(record.started_at),
        completed_at=_datetime(record.finished_at),
        result=None if record.result is None else payload.decode(record.result),
        error=None if record.status is StoredStatus.DONE else record.last_error,
        traceback=record.errors[-1].traceback if record.errors else None,
        owner=record.owner,
        progress=record.progress,
        stage=record.progress_note,
        dedupe_key=record.dedupe_key,
        signals=signals,
    )


def status_of(record: JobRecord) -> JobStatus:
    """The status of a record. A waiting job that was started before is a failed one, also when its
    retry is due."""
    waiting = record.status not in TERMINAL and record.status is not StoredStatus.RUNNING
    if waiting and record.attempts > 0:
        return JobStatus.FAILED
    return STATUS_OF_STATE[record.status]


def _datetime(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)
