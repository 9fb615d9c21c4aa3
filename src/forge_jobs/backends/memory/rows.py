"""The rows of the memory backend: one job, one process, and their records for readers."""

from dataclasses import dataclass, field

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import AttemptError, Claim, ClaimedJob, JobRecord, LaneOrder, NewJob
from forge_jobs.core.limits import lane_bucket
from forge_jobs.core.status import JobStatus
from forge_jobs.store.processes import NewProcess, ProcessRecord, ProcessStats


@dataclass(slots=True, eq=False)
class Row:
    """One job. Only ``transitions`` writes ``status``, ``owner``, ``epoch`` and ``attempts``.

    ``last_owner`` is the owner that had the present epoch, so that a repeated finish is recognised.
    ``stamp`` changes with every transition: an index entry with an older stamp is void.
    ``limit_bucket`` is where a held job waits. ``track`` is the track on which its task is claimed.
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
    last_owner: int | None = None
    exchange: int = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    last_error: str | None = None
    errors: tuple[AttemptError, ...] = ()
    result: bytes | None = None
    progress: float | None = None
    progress_note: str | None = None
    crashes: int = 0
    throttles: int = 0
    throttled_since: Instant | None = None
    missing_since: Instant | None = None
    cancel_requested_at: Instant | None = None
    cancel_reason: str = ""
    stamp: int = 0
    limit_bucket: str | None = None
    track: str | None = None

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def priority(self) -> int:
        return self.job.priority

    @property
    def lane_bucket(self) -> str | None:
        """The limit bucket of its lane; None without a lane or for a lane without order."""
        job = self.job
        if job.lane is None or job.order is LaneOrder.NONE:
            return None
        return lane_bucket(job.queue, job.lane)

    @property
    def candidate_buckets(self) -> list[str]:
        """The limit buckets in which it may have to wait: that of its lane, then its limit key."""
        buckets = (self.lane_bucket, self.job.limit_key)
        return [bucket for bucket in buckets if bucket is not None]

    @property
    def started(self) -> bool:
        """Whether the present claim was marked started."""
        return self.started_at is not None

    def owned_by(self, owner: int, claim: Claim) -> bool:
        """The fence: whether owner and epoch of a claim are current."""
        return self.owner == owner and self.epoch == claim.epoch

    def expired(self, now: Instant) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def claimed(self) -> ClaimedJob:
        job = self.job
        return ClaimedJob(
            self.key, self.epoch, job.kind, job.queue, job.payload, self.attempts,
            job.max_attempts, self.enqueued_at, self.run_at, self.started, job.priority,
            self.crashes, job.timeout_s, self.throttled_since, self.missing_since, job.tags,
            job.limit_key or self.lane_bucket, job.trace, job.options,
        )  # fmt: skip

    def record(self) -> JobRecord:
        job = self.job
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
            owner=self.owner,
            started_at=self.started_at,
            finished_at=self.finished_at,
            expires_at=self.expires_at,
            timeout_s=job.timeout_s,
            last_error=self.last_error,
            errors=self.errors,
            result=self.result,
            progress=self.progress,
            progress_note=self.progress_note,
            tags=job.tags,
            dedupe_key=job.dedupe_key,
            dedupe_for_s=job.dedupe_for_s,
            unique_while=job.unique_while,
            limit_key=job.limit_key,
            lane=job.lane,
            order=job.order,
            limit_bucket=self.limit_bucket,
            crashes=self.crashes,
            throttles=self.throttles,
            throttled_since=self.throttled_since,
            missing_since=self.missing_since,
            cancel_requested_at=self.cancel_requested_at,
            on_dead=job.on_dead,
            trace=job.trace,
            options=job.options,
        )


@dataclass(slots=True, eq=False)
class Process:
    """One worker process. ``dead`` is final; an expired lease alone is not."""

    key: int
    registration: NewProcess
    started_at: Instant
    beat_at: Instant
    stats: ProcessStats = field(default_factory=ProcessStats)
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
