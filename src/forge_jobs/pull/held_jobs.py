"""The jobs this process holds: how they end, are handed back, and are kept alive."""

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
from .claiming import Claiming, Round, Taken
from .job import Job, JobStatus, dequeued, shown
from .requests import id_text


class HeldJobs:
    """Every job that was dequeued here and has not ended, by id.

    A Job carries its own claim, so that another process (a forked child) can end it too; an id
    alone means the claim that was made here.
    """

    def __init__(
        self,
        access: StoreAccess,
        queue: str,
        *,
        seats: ClaimLeases,
        claiming: Claiming,
        retry: Retry | None,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._access = access
        self._queue = queue
        self._seats = seats
        self._claiming = claiming
        self._retry = retry
        self._clock = clock
        self._entropy = entropy
        self._config: tuple[int, QueueConfig | None] = (-1, None)
        self._held: dict[str, Job] = {}
        self.forget_parent()

    def forget_parent(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._guard = threading.Lock()

    def adopt(self, taken: Taken, lease_s: float) -> Job | None:
        """The job that a round brought, if any."""
        claim = taken.claim
        if claim is None:
            return None
        job = dequeued(
            claim,
            job_id=ids.job_id(claim.key, claim.enqueued_at, self._access.store.tag),
            owner=taken.seat.key,
            now=taken.now,
            lease_until=after(taken.now, lease_s),
        )
        job.signals.began = self._clock.mono()
        with self._guard:
            self._held[job.id] = job
        return job

    def undo(self, round: Round) -> None:
        """A call to get a job was interrupted: it goes back."""
        self._claiming.undo(round)

    def find(self, job: Job | str) -> tuple[Job, ClaimedJob]:
        """The job that is meant and the claim on it; LeaseLost, Refused or NotFound without one."""
        if isinstance(job, Job):
            if job.claim is not None:
                return job, job.claim
            job_id = job.id
        else:
            job_id = id_text(job)
        with self._guard:
            held = self._held.get(job_id)
        if held is not None and held.claim is not None:
            return held, held.claim
        status = shown(self._claiming.record(job_id))
        if status is JobStatus.RUNNING:
            raise LeaseLost(f"job {job_id} is running, but it was not dequeued here")
        raise Refused(f"job {job_id} is {status}, not running: dequeue it first")

    def done(self, job: Job, claim: ClaimedJob, result: bytes | None) -> Finish:
        """The end of a success."""
        return done(claim, result=result, ran_s=self._ran_s(job))

    def finish(self, job: Job, claim: ClaimedJob, outcome: AnyOutcome) -> Finish:
        """The end that any other outcome leads to."""
        return decide(
            claim,
            outcome,
            now=self._store_now(job),
            roll=self._entropy.roll(),
            backoff=self._backoff(),
            ran_s=self._ran_s(job),
        )

    def end(self, job: Job, finish: Finish) -> None:
        """Write the end of a claim."""
        assert job.owner is not None
        try:
            self._claiming.end(job.owner, finish, job_id=job.id, unsure=job.signals.unsure)
            self._let_go(job)
        except Conflict:
            self._let_go(job)
            raise
        except BaseException:
            # No answer, or a signal before it could be told: the end may be written.
            job.signals.unsure = True
            raise

    def end_and_adopt(
        self, job: Job, finish: Finish, kinds: tuple[str, ...], lease_s: float
    ) -> tuple[bool, Job | None]:
        """Write the end of a claim and get the next job, in one round if that can be; whether the
        end was written. False with no job: ``end`` is the way, and tells what is the matter."""
        assert job.owner is not None
        round = Round()
        try:
            found = self._claiming.end_and_take(job.owner, finish, kinds, round)
            if found is None:
                return False, None
            written, taken = found
            if written:
                self._let_go(job)
            return written, self.adopt(taken, lease_s)
        except BaseException:
            job.signals.unsure = True
            self.undo(round)
            raise

    def release(self, job: Job, claim: ClaimedJob) -> None:
        """Hand a claim back as if it had never been made."""
        assert job.owner is not None
        self._claiming.release(job.owner, Claim(claim.key, claim.epoch))
        self._let_go(job)

    def heartbeat(self, job: Job, claim: ClaimedJob) -> bool:
        """Begin the lease of a job anew; False when it was cancelled, LeaseLost when too late."""
        if not self._access.run(lambda store: self.aheartbeat(store, job, claim)):
            raise self._claiming.lost(job.id)
        return not job.signals.cancelled

    async def aheartbeat(self, store: Store, job: Job, claim: ClaimedJob) -> bool:
        """The same on the I/O thread; False when it is too late."""
        assert job.owner is not None
        if not await self._seats.heartbeat(store, job.owner):
            job.signals.lost = True
            self._seats.lose(job.owner)
            return False
        await self.look(store, job, claim)
        return True

    async def look(self, store: Store, job: Job, claim: ClaimedJob) -> None:
        """Hear whether somebody cancelled the job."""
        assert job.owner is not None
        control = await store.processes.control(job.owner)
        job.signals.cancelled = claim.key in control.cancels

    def _let_go(self, job: Job) -> None:
        with self._guard:
            if self._held.get(job.id) is job:
                del self._held[job.id]

    def _ran_s(self, job: Job) -> float:
        return max(self._clock.mono() - job.signals.began, 0.0) if job.signals.began else 0.0

    def _store_now(self, job: Job) -> Instant:
        """Store time: from the answer that brought the job, by the steady clock."""
        if job.started_at is None:
            return self._clock.now()
        return after(from_datetime(job.started_at, field="started_at"), self._ran_s(job))

    def _backoff(self) -> Backoff:
        if self._retry is not None:
            return self._retry.backoff
        version = self._claiming.control_version
        if self._config[0] != version:
            found = self._access.run(lambda store: store.queues.get(self._queue))
            self._config = (version, found)
        settings = self._config[1]
        if settings is None or not settings.backoff_enabled:
            return DEFAULT_BACKOFF
        return Backoff(base_s=settings.backoff_base_s, max_s=settings.backoff_max_s)
