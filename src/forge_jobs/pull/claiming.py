"""Getting a job and ending it: the rounds of a pull queue with its store.

There is no second way of claiming: each round is an exchange like a worker's, for one job.
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
from .job import shown

LOST_NOTE: Final = "the lease ended before the job was completed or failed"
_MAX_REAPED: Final = 500
_REAP_EVERY_S: Final = 1.0
# After an outage everybody looks expired: workers get one lease of theirs to show that they live.
_PATIENCE_S: Final = 15.0
_TRIES: Final = 3
# Nobody else may be there to bring into the books what was counted.
_FOLD_EVERY_S: Final = 10.0
_MAX_FOLDED: Final = 1_000
_MAX_FOLDS: Final = 100


class Taken:
    """What a round brought: perhaps a claim, and when to ask again if not."""

    __slots__ = ("claim", "next_due", "now", "seat")

    def __init__(self, seat: ClaimLease, answer: Exchanged) -> None:
        self.seat = seat
        self.claim: ClaimedJob | None = answer.claims[0] if answer.claims else None
        self.now: Instant = answer.now
        self.next_due: Instant | None = answer.next_due


class Round:
    """How far a call to get a job has come, for its undoing: whose claim it is, and its number."""

    __slots__ = ("number", "seat")

    def __init__(self) -> None:
        self.seat: ClaimLease | None = None
        self.number = 0


class Claiming:
    """Rounds of one queue; safe for many threads."""

    def __init__(self, access: StoreAccess, queue: str, seats: ClaimLeases, clock: Clock) -> None:
        self._access = access
        self._queue = queue
        self._seats = seats
        self._clock = clock
        self._reap_at = 0.0
        self._judge_at = 0.0
        self._fold_at = clock.mono() + _FOLD_EVERY_S
        self.control_version = 0

    # ---------------------------------------------------------------- getting

    def take(self, kinds: tuple[str, ...], lease_s: float, round: Round) -> Taken:
        """The best job that is due, if any. Lost claims are taken back first, at most once a
        second while there is work, and always before saying that there is none."""
        looked = self._clock.mono() >= self._reap_at
        if looked:
            self.reap()
        taken = self._claim(kinds, lease_s, round)
        if taken.claim is None and not looked and self.reap():
            taken = self._claim(kinds, lease_s, round)
        return taken

    def reap(self) -> bool:
        """Take back what nobody holds any more; whether anything came back."""
        now = self._clock.mono()
        if now < self._judge_at:
            return False
        self._reap_at = now + _REAP_EVERY_S
        if now >= self._fold_at and not self._access.ready().capabilities.sync_calls:
            # Stores that are written on the calling thread do it by themselves.
            self._fold_at = now + _FOLD_EVERY_S
            self._access.start(self._roll_up)
        found, more = False, True
        while more:
            try:
                reaped = self._access.run(
                    lambda store: store.jobs.reap(crash_note=LOST_NOTE, limit=_MAX_REAPED)
                )
            except StoreError:
                self._judge_at = self._clock.mono() + _PATIENCE_S
                raise
            found, more = found or reaped.pending > 0, reaped.more
        return found

    async def _roll_up(self) -> None:
        """Aside: no caller waits for it, and what it cannot do now it does later."""
        store = await self._access.aready()
        with contextlib.suppress(StoreError):
            for _ in range(_MAX_FOLDS):
                if not await store.metrics.roll_up(limit=_MAX_FOLDED):
                    return

    def undo(self, round: Round) -> None:
        """An error or a signal ended the call: what it has claimed goes back, unspent."""
        if round.seat is not None:
            self._seats.undo(round.seat, round.number)

    def _claim(self, kinds: tuple[str, ...], lease_s: float, round: Round) -> Taken:
        want = (Want(self._queue, 1, 0, kinds),)
        for _ in range(_TRIES):
            round.seat = None
            seat = self._seats.take(lease_s)
            round.number = number = seat.next_number()
            round.seat = seat
            answer = self._exchange(Exchange(owner=seat.key, number=number, want=want))
            if answer.alive:
                return self._got(seat, answer)
            self._seats.lose(seat.key)
        raise Unavailable(
            f"queue {self._queue!r}: leases end as soon as they begin; ask for a longer lease"
        )

    # ---------------------------------------------------------------- ending

    def end(self, owner: int, finish: Finish, *, job_id: str, unsure: bool) -> None:
        """Write the end of a claim, or say why it cannot be written."""
        answer = self._exchange(Exchange(owner=owner, number=0, finish=(finish,)))
        verdict = answer.verdicts[0]
        self._seats.ended(owner, Claim(finish.key, finish.epoch), lost=verdict is Verdict.STALE)
        if verdict is Verdict.STALE:
            raise self.lost(job_id)
        if verdict is Verdict.ALREADY:
            record = self.record(job_id)
            if not unsure or record.status is not finish.status:
                raise Refused(f"job {job_id} has ended before: it is {shown(record)}")

    def end_and_take(
        self, owner: int, finish: Finish, kinds: tuple[str, ...], round: Round
    ) -> tuple[bool, Taken] | None:
        """The end of one job and the claim of the next in one round; whether the end was written.

        None, with nothing done, when something else has to be done first.
        """
        seat = self._seats.fresh(owner)
        if seat is None or self._clock.mono() >= self._reap_at:
            return None
        want = (Want(self._queue, 1, 0, kinds),)
        round.number = number = seat.next_number()
        round.seat = seat
        request = Exchange(owner=owner, number=number, finish=(finish,), want=want)
        answer = self._exchange(request)
        written = answer.verdicts[0] is Verdict.APPLIED
        taken = self._got(seat, answer)
        if not answer.alive:
            self._seats.lose(owner)
        elif written:
            self._seats.ended(owner, Claim(finish.key, finish.epoch))
        return written, taken

    def _got(self, seat: ClaimLease, answer: Exchanged) -> Taken:
        taken = Taken(seat, answer)
        claim = taken.claim
        self._seats.got(seat, None if claim is None else Claim(claim.key, claim.epoch))
        return taken

    def release(self, owner: int, claim: Claim) -> None:
        """Hand a claim back as if it had never been made; no effect when it was lost before."""
        self._exchange(Exchange(owner=owner, number=0, release=(claim,)))
        self._seats.ended(owner, claim)

    # ---------------------------------------------------------------- looking

    def record(self, job_id: str) -> JobRecord:
        """A job of this queue, or NotFound."""
        found = self._access.run(lambda store: store.jobs.get(job_id))
        if found is None or found.queue != self._queue:
            raise NotFound(f"queue {self._queue!r} has no job {job_id!r}")
        return found

    def lost(self, job_id: str) -> Conflict:
        """What to say about a claim that is not valid any more."""
        with contextlib.suppress(NotFound):
            return LeaseLost(
                f"the lease of job {job_id} was lost: it is {shown(self.record(job_id))} now, and "
                "this result was not stored; ask for a longer lease, or send heartbeats"
            )
        return LeaseLost(f"the lease of job {job_id} was lost and the job was deleted since")

    def _exchange(self, request: Exchange) -> Exchanged:
        try:
            store = self._access.ready()
            if store.capabilities.sync_calls:
                answer = store.exchange_sync(request)
            else:
                answer = self._access.run(lambda store: self._exchange_there(store, request))
        except StoreError:
            self._judge_at = self._clock.mono() + _PATIENCE_S
            raise
        self.control_version = answer.control_version
        return answer

    async def _exchange_there(self, store: Store, request: Exchange) -> Exchanged:
        seat = self._seats.of(request.owner)
        if seat is None or not request.want:
            return await store.jobs.exchange(request)
        # It goes on when its caller is interrupted; what undoes it comes after it.
        async with seat.turn:
            return await store.jobs.exchange(request)
