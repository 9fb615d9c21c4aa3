"""Claims and finishes the jobs of a pull queue.

There is no second way of claiming: each call is an ``exchange`` like a worker's, for one job.
"""

import contextlib
from typing import Final

from forge_jobs.client.store_access import StoreAccess
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import Conflict, LeaseLost, NotFound, Refused, StoreError, Unavailable
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim, ClaimedJob, JobRecord
from forge_jobs.kit.clock import Clock
from forge_jobs.store.jobs import Exchange, Exchanged, Verdict, Want
from forge_jobs.store.store import Store

from .claim_leases import ClaimLease, ClaimLeases
from .job import status_of

LOST_NOTE: Final = "the lease ended before the job was completed or failed"
_REAP_BATCH: Final = 500
_REAP_EVERY_S: Final = 1.0
# After an outage every lease looks expired: workers get one lease of theirs to send a heartbeat.
_OUTAGE_GRACE_S: Final = 15.0
_MAX_TRIES: Final = 3
# No worker may be running whose service merges the counters.
_ROLL_UP_EVERY_S: Final = 10.0
_ROLL_UP_BATCH: Final = 1_000
_MAX_ROLL_UPS: Final = 100


class ClaimReply:
    """The reply to a claim: perhaps a job, else when one may become due."""

    __slots__ = ("job", "lease", "next_due", "now")

    def __init__(self, lease: ClaimLease, reply: Exchanged) -> None:
        self.lease = lease
        self.job: ClaimedJob | None = reply.claims[0] if reply.claims else None
        self.now: Instant = reply.now
        self.next_due: Instant | None = reply.next_due


class ClaimAttempt:
    """The exchange that a call to get a job has sent: its owner and number, to undo the claim when
    the call is interrupted."""

    __slots__ = ("lease", "number")

    def __init__(self) -> None:
        self.lease: ClaimLease | None = None
        self.number = 0


class JobClaimer:
    """The exchanges of one queue; safe for many threads."""

    def __init__(self, access: StoreAccess, queue: str, leases: ClaimLeases, clock: Clock) -> None:
        self._access = access
        self._queue = queue
        self._leases = leases
        self._clock = clock
        self._next_reap = 0.0
        self._no_reap_before = 0.0
        self._next_roll_up = clock.mono() + _ROLL_UP_EVERY_S
        self.control_version = 0

    # ---------------------------------------------------------------- claim

    def claim(self, kinds: tuple[str, ...], lease_s: float, attempt: ClaimAttempt) -> ClaimReply:
        """Claim the first job that is due, if any. Lost claims are reaped first: at most once a
        second while there is work, and always before the reply is that there is none."""
        reaped = self._clock.mono() >= self._next_reap
        if reaped:
            self.reap()
        reply = self._claim(kinds, lease_s, attempt)
        if reply.job is None and not reaped and self.reap():
            reply = self._claim(kinds, lease_s, attempt)
        return reply

    def reap(self) -> bool:
        """Take jobs from owners whose lease has ended; whether any became pending."""
        now = self._clock.mono()
        if now < self._no_reap_before:
            return False
        self._next_reap = now + _REAP_EVERY_S
        if now >= self._next_roll_up and not self._access.ready().capabilities.sync_calls:
            # Stores that are written on the calling thread roll up by themselves.
            self._next_roll_up = now + _ROLL_UP_EVERY_S
            self._access.start(self._roll_up)
        found, more = False, True
        while more:
            try:
                reaped = self._access.run(
                    lambda store: store.jobs.reap(crash_note=LOST_NOTE, limit=_REAP_BATCH)
                )
            except StoreError:
                self._no_reap_before = self._clock.mono() + _OUTAGE_GRACE_S
                raise
            found, more = found or reaped.pending > 0, reaped.more
        return found

    async def _roll_up(self) -> None:
        """In the background: no caller waits for it, and a later call does what this one cannot."""
        store = await self._access.aready()
        with contextlib.suppress(StoreError):
            for _ in range(_MAX_ROLL_UPS):
                if not await store.metrics.roll_up(limit=_ROLL_UP_BATCH):
                    return

    def undo(self, attempt: ClaimAttempt) -> None:
        """Release what an interrupted call has claimed, without spending an attempt."""
        if attempt.lease is not None:
            self._leases.undo(attempt.lease, attempt.number)

    def _claim(self, kinds: tuple[str, ...], lease_s: float, attempt: ClaimAttempt) -> ClaimReply:
        want = (Want(self._queue, 1, 0, kinds),)
        for _ in range(_MAX_TRIES):
            attempt.lease = None
            lease = self._leases.acquire(lease_s)
            attempt.number = number = lease.next_number()
            attempt.lease = lease
            reply = self._exchange(Exchange(owner=lease.owner, number=number, want=want))
            if reply.alive:
                return self._accept(lease, reply)
            self._leases.discard(lease.owner)
        raise Unavailable(
            f"queue {self._queue!r}: leases end as soon as they begin; ask for a longer lease"
        )

    # ---------------------------------------------------------------- finish

    def finish(self, owner: int, finish: Finish, *, job_id: str, in_doubt: bool) -> None:
        """Write a finish, or raise LeaseLost or Refused.

        ``in_doubt``: an earlier try got no reply, so the same finish may be written already.
        """
        reply = self._exchange(Exchange(owner=owner, number=0, finish=(finish,)))
        verdict = reply.verdicts[0]
        claim = Claim(finish.key, finish.epoch)
        self._leases.remove_claim(owner, claim, lost=verdict is Verdict.STALE)
        if verdict is Verdict.STALE:
            raise self.lease_lost(job_id)
        if verdict is Verdict.ALREADY:
            record = self.record(job_id)
            if not in_doubt or record.status is not finish.status:
                raise Refused(f"job {job_id} has ended before: it is {status_of(record)}")

    def finish_and_claim(
        self, owner: int, finish: Finish, kinds: tuple[str, ...], attempt: ClaimAttempt
    ) -> tuple[bool, ClaimReply] | None:
        """Finish one job and claim the next in one exchange; whether the finish was applied.

        None, with nothing done, when the lease needs a heartbeat or lost claims must be reaped.
        """
        lease = self._leases.reusable(owner)
        if lease is None or self._clock.mono() >= self._next_reap:
            return None
        want = (Want(self._queue, 1, 0, kinds),)
        attempt.number = number = lease.next_number()
        attempt.lease = lease
        request = Exchange(owner=owner, number=number, finish=(finish,), want=want)
        exchanged = self._exchange(request)
        applied = exchanged.verdicts[0] is Verdict.APPLIED
        reply = self._accept(lease, exchanged)
        if not exchanged.alive:
            self._leases.discard(owner)
        elif applied:
            self._leases.remove_claim(owner, Claim(finish.key, finish.epoch))
        return applied, reply

    def _accept(self, lease: ClaimLease, exchanged: Exchanged) -> ClaimReply:
        reply = ClaimReply(lease, exchanged)
        job = reply.job
        self._leases.add_claim(lease, None if job is None else Claim(job.key, job.epoch))
        return reply

    def release(self, owner: int, claim: Claim) -> None:
        """Release a claim without spending the attempt; no effect when it was lost before."""
        self._exchange(Exchange(owner=owner, number=0, release=(claim,)))
        self._leases.remove_claim(owner, claim)

    # ---------------------------------------------------------------- query

    def record(self, job_id: str) -> JobRecord:
        """A job of this queue, or NotFound."""
        found = self._access.run(lambda store: store.jobs.get(job_id))
        if found is None or found.queue != self._queue:
            raise NotFound(f"queue {self._queue!r} has no job {job_id!r}")
        return found

    def lease_lost(self, job_id: str) -> Conflict:
        """The error for a claim that is no longer valid."""
        with contextlib.suppress(NotFound):
            status = status_of(self.record(job_id))
            return LeaseLost(
                f"the lease of job {job_id} was lost: it is {status} now, and "
                "this result was not stored; ask for a longer lease, or send heartbeats"
            )
        return LeaseLost(f"the lease of job {job_id} was lost and the job was deleted since")

    def _exchange(self, request: Exchange) -> Exchanged:
        try:
            store = self._access.ready()
            if store.capabilities.sync_calls:
                reply = store.exchange_sync(request)
            else:
                reply = self._access.run(lambda store: self._exchange_on_io(store, request))
        except StoreError:
            self._no_reap_before = self._clock.mono() + _OUTAGE_GRACE_S
            raise
        self.control_version = reply.control_version
        return reply

    async def _exchange_on_io(self, store: Store, request: Exchange) -> Exchanged:
        lease = self._leases.in_use(request.owner)
        if lease is None or not request.want:
            return await store.jobs.exchange(request)
        # The exchange goes on when its caller is interrupted; ``undo`` waits for it here.
        async with lease.exchange_lock:
            return await store.jobs.exchange(request)
