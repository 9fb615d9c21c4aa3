"""The rows of a row-wise store: one job, one process, and their records for readers."""

from msgspec import Struct, structs

from forge_jobs.core.declaration import routed
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import (
    ClaimedJob,
    JobRecord,
    LaneOrder,
    NewJob,
    last_group,
    shown_progress,
)
from forge_jobs.core.status import JobStatus
from forge_jobs.store.processes import NewProcess, ProcessRecord, ProcessStats

from .details import Details
from .limit_buckets import bound_lane

_NO_DETAILS = Details()


class Row(Struct):
    """One job: ``ports.JobRow`` over the request it was enqueued with.

    ``exchange`` is the number of the exchange that claimed it. ``track`` is the track on which its
    task is claimed.
    """

    key: int
    id: str
    job: NewJob
    enqueued_at: Instant
    run_at: Instant
    expires_at: Instant | None
    status: JobStatus
    attempts: int = 0
    epoch: int = 0
    owner: int | None = None
    exchange: int = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    last_error: str | None = None
    result: bytes | None = None
    bucket: str | None = None
    track: str | None = None
    has_steps: bool = False
    stored_details: Details | None = None

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def kind(self) -> str:
        return self.job.kind

    @property
    def max_attempts(self) -> int:
        return self.job.max_attempts

    @property
    def dedupe_key(self) -> str | None:
        return self.job.dedupe_key

    @property
    def limit_key(self) -> str | None:
        return self.job.limit_key

    @property
    def is_bound(self) -> bool:
        return self.job.limit_key is not None or self.job.lane is not None or self.track is not None

    @property
    def has_details(self) -> bool:
        return self.stored_details is not None

    def lane_bucket(self) -> str | None:
        job = self.job
        return None if job.lane is None else bound_lane(job.queue, job.lane, job.order)

    @property
    def error_group(self) -> str | None:
        """The error group of the last failed attempt."""
        details = self.stored_details
        return None if details is None else last_group(details.errors)

    @property
    def strict(self) -> bool:
        """Whether it waits for every older live job of its lane."""
        return self.job.order is LaneOrder.STRICT

    def options(self) -> NewJob:
        return self.job

    def details(self) -> Details:
        return structs.replace(self.stored_details or _NO_DETAILS)

    def set_details(self, details: Details) -> None:
        self.stored_details = None if details == _NO_DETAILS else details

    def set_result(self, result: bytes | None) -> None:
        self.result = result

    def declare(self, job: NewJob) -> None:
        """Take over what the task declares (``JobStore.declare``)."""
        own = self.job
        keeps_lane = own.lane is not None
        self.job = structs.replace(
            own,
            priority=job.priority,
            max_attempts=job.max_attempts,
            timeout_s=job.timeout_s,
            tags=job.tags,
            limit_key=job.limit_key,
            lane=own.lane if keeps_lane else job.lane,
            order=own.order if keeps_lane else job.order,
            on_dead=own.on_dead or job.on_dead,
            options=job.options,
        )
        self.track = self.kind if job.track else None
        self.attempts, self.started_at = 1, None

    def route(self, queue: str) -> None:
        self.job = structs.replace(self.job, queue=queue, options=routed(self.job.options))

    def drop_expiry(self, now: Instant) -> None:
        if self.expired(now):
            self.expires_at = None

    def remove_expiry(self) -> None:
        self.expires_at = None

    def expired(self, now: Instant) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def claimed(self) -> ClaimedJob:
        job, details = self.job, self.stored_details or _NO_DETAILS
        return ClaimedJob(
            self.key, self.epoch, job.kind, job.queue, job.payload, self.attempts,
            job.max_attempts, self.enqueued_at, self.run_at, self.started_at is not None,
            job.priority, details.crashes, job.timeout_s, details.throttled_since,
            details.missing_since, job.tags, job.limit_key or self.lane_bucket(), job.trace,
            job.options,
        )  # fmt: skip

    def record(self) -> JobRecord:
        job, details = self.job, self.stored_details or _NO_DETAILS
        return JobRecord(
            key=self.key,
            id=self.id,
            kind=job.kind,
            queue=job.queue,
            status=self.status,
            payload=job.payload,
            priority=job.priority,
            attempts=self.attempts,
            max_attempts=job.max_attempts,
            epoch=self.epoch,
            enqueued_at=self.enqueued_at,
            run_at=self.run_at,
            owner=self.owner if self.status is JobStatus.RUNNING else None,
            started_at=self.started_at,
            finished_at=self.finished_at,
            expires_at=self.expires_at,
            timeout_s=job.timeout_s,
            last_error=self.last_error,
            errors=details.errors,
            result=self.result,
            progress=shown_progress(self.status, details.progress),
            progress_note=details.progress_note,
            tags=job.tags,
            dedupe_key=job.dedupe_key,
            dedupe_for_s=job.dedupe_for_s,
            unique_while=job.unique_while,
            limit_key=job.limit_key,
            lane=job.lane,
            order=job.order,
            limit_bucket=self.bucket if self.status is JobStatus.HELD else None,
            crashes=details.crashes,
            throttles=details.throttles,
            throttled_since=details.throttled_since,
            missing_since=details.missing_since,
            cancel_requested_at=details.cancel_at,
            on_dead=job.on_dead,
            trace=job.trace,
            options=job.options,
            has_steps=self.has_steps,
            failed_runs=details.failed_runs,
            last_owner=self.owner,
        )


class Process(Struct, frozen=True):
    """One worker process. ``dead`` is final; an expired lease alone is not."""

    key: int
    registration: NewProcess
    started_at: Instant
    beat_at: Instant
    stats: ProcessStats = ProcessStats()
    quiet: bool = False
    dead: bool = False

    @property
    def expires_at(self) -> Instant:
        return self.beat_at + round(self.registration.lease_s * SECOND)

    def alive(self, now: Instant) -> bool:
        return not self.dead and self.expires_at > now

    def record(self) -> ProcessRecord:
        registration, stats = self.registration, self.stats
        return ProcessRecord(
            key=self.key,
            host_id=registration.host_id,
            label=registration.label,
            queues=registration.queues,
            pid=registration.pid,
            hostname=registration.hostname,
            version=registration.version,
            started_at=self.started_at,
            beat_at=self.beat_at,
            lease_s=registration.lease_s,
            running=stats.running,
            slots=dict(stats.slots),
            memory_bytes=stats.memory_bytes,
            cores=stats.cores,
            disk_share=stats.disk_share,
            quiet=self.quiet,
        )
