"""The jobs this process has dequeued and not finished: finish, release, heartbeat."""

import threading

from forge_jobs.client.store_access import StoreAccess
from forge_jobs.core import ids
from forge_jobs.core.decide import Finish, decide, done
from forge_jobs.core.errors import Conflict, LeaseLost, Refused
from forge_jobs.core.instant import Instant, after, from_datetime
from forge_jobs.core.job import Claim, ClaimedJob
from forge_jobs.core.outcome import AnyOutcome
from forge_jobs.core.retry import DEFAULT_BACKOFF, Backoff, Retry
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

from .claim_leases import ClaimLeases
from .claiming import ClaimAttempt, ClaimReply, JobClaimer
from .job import Job, JobStatus, from_claim, status_of
from .requests import id_text


class HeldJobs:
    """Every held job, by id.

    A Job carries its own claim, so another process (a forked child) can finish it too. An id alone
    means the claim that was made here.
    """

    def __init__(
        self,
        access: StoreAccess,
        queue: str,
        *,
        leases: ClaimLeases,
        claimer: JobClaimer,
        retry: Retry | None,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._access = access
        self._queue = queue
        self._leases = leases
        self._claimer = claimer
        self._retry = retry
        self._clock = clock
        self._entropy = entropy
        self._config: tuple[int, QueueConfig | None] = (-1, None)
        self._jobs: dict[str, Job] = {}
        self.forget_parent()

    def forget_parent(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def hold(self, reply: ClaimReply, lease_s: float) -> Job | None:
        """The job of a claim reply, held from now on; None if nothing was claimed."""
        claim = reply.job
        if claim is None:
            return None
        job = from_claim(
            claim,
            job_id=ids.job_id(claim.key, claim.enqueued_at, self._access.store.tag),
            owner=reply.lease.owner,
            now=reply.now,
            lease_until=after(reply.now, lease_s),
        )
        job.signals.started_at = self._clock.mono()
        with self._lock:
            self._jobs[job.id] = job
        return job

    def find(self, job: Job | str) -> tuple[Job, ClaimedJob]:
        """A held job and its claim; LeaseLost, Refused or NotFound where there is no claim."""
        if isinstance(job, Job):
            if job.claim is not None:
                return job, job.claim
            job_id = job.id
        else:
            job_id = id_text(job)
        with self._lock:
            held = self._jobs.get(job_id)
        if held is not None and held.claim is not None:
            return held, held.claim
        status = status_of(self._claimer.record(job_id))
        if status is JobStatus.RUNNING:
            raise LeaseLost(f"job {job_id} is running, but it was not dequeued here")
        raise Refused(f"job {job_id} is {status}, not running: dequeue it first")

    def done(self, job: Job, claim: ClaimedJob, result: bytes | None) -> Finish:
        """The finish of a success."""
        return done(claim, result=result, ran_s=self._ran_s(job))

    def decide(self, job: Job, claim: ClaimedJob, outcome: AnyOutcome) -> Finish:
        """The finish that any other outcome leads to."""
        return decide(
            claim,
            outcome,
            now=self._store_now(job),
            roll=self._entropy.roll(),
            backoff=self._backoff(),
            ran_s=self._ran_s(job),
        )

    def finish(self, job: Job, finish: Finish) -> None:
        """Write a finish; raises LeaseLost or Refused."""
        assert job.owner is not None
        try:
            in_doubt = job.signals.in_doubt
            self._claimer.finish(job.owner, finish, job_id=job.id, in_doubt=in_doubt)
            self._forget(job)
        except Conflict:
            self._forget(job)
            raise
        except BaseException:
            # The reply was lost, or a signal interrupted the call: the finish may be written.
            job.signals.in_doubt = True
            raise

    def finish_and_claim(
        self, job: Job, finish: Finish, kinds: tuple[str, ...], lease_s: float
    ) -> tuple[bool, Job | None]:
        """Write a finish and claim the next job in one exchange if possible; whether the finish was
        applied. (False, None): call ``finish``, which raises the reason if there is one."""
        assert job.owner is not None
        attempt = ClaimAttempt()
        try:
            found = self._claimer.finish_and_claim(job.owner, finish, kinds, attempt)
            if found is None:
                return False, None
            applied, reply = found
            if applied:
                self._forget(job)
            return applied, self.hold(reply, lease_s)
        except BaseException:
            job.signals.in_doubt = True
            self._claimer.undo(attempt)
            raise

    def release(self, job: Job, claim: ClaimedJob) -> None:
        """Release a claim without spending the attempt."""
        assert job.owner is not None
        self._claimer.release(job.owner, Claim(claim.key, claim.epoch))
        self._forget(job)

    def heartbeat(self, job: Job, claim: ClaimedJob) -> bool:
        """Renew the lease of a job; False when it was cancelled, LeaseLost when it is too late."""
        if not self._access.run(lambda store: self.aheartbeat(store, job, claim)):
            raise self._claimer.lease_lost(job.id)
        return not job.signals.cancelled

    async def aheartbeat(self, store: Store, job: Job, claim: ClaimedJob) -> bool:
        """``heartbeat`` on the I/O thread; False when the lease was lost."""
        assert job.owner is not None
        if not await self._leases.heartbeat(store, job.owner):
            job.signals.lost = True
            self._leases.discard(job.owner)
            return False
        await self.read_cancel(store, job, claim)
        return True

    async def read_cancel(self, store: Store, job: Job, claim: ClaimedJob) -> None:
        """Read whether somebody cancelled the job."""
        assert job.owner is not None
        control = await store.processes.control(job.owner)
        job.signals.cancelled = claim.key in control.cancels

    def _forget(self, job: Job) -> None:
        with self._lock:
            if self._jobs.get(job.id) is job:
                del self._jobs[job.id]

    def _ran_s(self, job: Job) -> float:
        started_at = job.signals.started_at
        return max(self._clock.mono() - started_at, 0.0) if started_at else 0.0

    def _store_now(self, job: Job) -> Instant:
        """Store time: that of the claim's reply, plus what has passed by the monotonic clock."""
        if job.started_at is None:
            return self._clock.now()
        return after(from_datetime(job.started_at, field="started_at"), self._ran_s(job))

    def _backoff(self) -> Backoff:
        if self._retry is not None:
            return self._retry.backoff
        version = self._claimer.control_version
        if self._config[0] != version:
            found = self._access.run(lambda store: store.queues.get(self._queue))
            self._config = (version, found)
        settings = self._config[1]
        if settings is None or not settings.backoff_enabled:
            return DEFAULT_BACKOFF
        return Backoff(base_s=settings.backoff_base_s, max_s=settings.backoff_max_s)
