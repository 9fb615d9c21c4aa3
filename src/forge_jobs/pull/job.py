"""A job of a pull queue, in the words of pull queues."""

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
    """Where a job stands. ``failed``: an attempt ended badly and another one is to come."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"


SHOWN: Final = {
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
    """What has happened to a claim while its handler runs."""

    __slots__ = ("began", "cancelled", "lost", "unsure")

    def __init__(self) -> None:
        # By the steady clock; 0 for a job that was only looked up.
        self.began = 0.0
        self.cancelled = False
        self.lost = False
        # The answer to an end that was sent got lost: it may have been written.
        self.unsure = False


class Job(Struct, frozen=True, kw_only=True, eq=False):
    """A job as it was when it was dequeued or looked up.

    ``attempts`` counts the attempts that were started, the running one included. ``claim`` is the
    right to end the job; a job that was only looked up has none.
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
    owner: int | None = None
    lease_until: datetime | None = None
    progress: float | None = None
    stage: str | None = None
    dedupe_key: str | None = None
    claim: ClaimedJob | None = None
    signals: Signals

    @property
    def stop_requested(self) -> bool:
        """Whether the handler should stop: somebody cancelled the job, or its lease was lost."""
        return self.signals.cancelled or self.signals.lost

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.status} {self.attempts}/{self.max_attempts}>"


def dequeued(
    claim: ClaimedJob, *, job_id: str, owner: int, now: Instant, lease_until: Instant
) -> Job:
    """A job that was just claimed."""
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


def looked_up(record: JobRecord) -> Job:
    """A job as the store shows it to anybody."""
    signals = Signals()
    signals.cancelled = record.cancel_requested_at is not None
    return Job(
        id=record.id,
        type=record.kind,
        payload=payload.decode(record.payload),
        status=shown(record),
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        created_at=to_datetime(record.enqueued_at),
        scheduled_at=to_datetime(record.run_at),
        started_at=_moment(record.started_at),
        completed_at=_moment(record.finished_at),
        result=None if record.result is None else payload.decode(record.result),
        error=None if record.status is StoredStatus.DONE else record.last_error,
        owner=record.owner,
        progress=record.progress,
        stage=record.progress_note,
        dedupe_key=record.dedupe_key,
        signals=signals,
    )


def shown(record: JobRecord) -> JobStatus:
    """A waiting job that was started before is a failed one, also when its time has come."""
    waiting = record.status not in TERMINAL and record.status is not StoredStatus.RUNNING
    if waiting and record.attempts > 0:
        return JobStatus.FAILED
    return SHOWN[record.status]


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)
