"""The hot call: finish, release and start claims, and claim more jobs, in one transaction."""

from collections.abc import Sequence

from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Exchanged, Promoted

from . import claims, transitions
from .limited_claim import LimitedClaim
from .tables import Tables


def exchange(tables: Tables, request: Exchange, now: Instant) -> Exchanged:
    """One exchange of a worker process, in the order that ``JobStore.exchange`` defines."""
    for finish in request.finish:
        if not transitions.is_outcome(finish.event, finish.status):
            raise Invalid(f"a claim cannot end as {finish.status} by {finish.event}")
    owner = request.owner
    for note in request.notes:
        claims.apply_note(tables, owner, note)
    timed = request.timed
    verdicts = [
        claims.apply_finish(tables, owner, finish, now, timed=timed) for finish in request.finish
    ]
    for claim in request.release:
        row = claims.owned_row(tables, owner, claim)
        if row is not None:
            claims.release(tables, row, now)
    for claim in request.started:
        row = claims.owned_row(tables, owner, claim)
        if row is not None:
            claims.mark_started(tables, row, now)
    alive = tables.alive(owner, now)
    claimed: list[ClaimedJob] = []
    next_due: Instant | None = None
    if alive:
        claimed, next_due = _claim_wanted(tables, request, now)
    return Exchanged(
        now=now,
        alive=alive,
        control_version=tables.control_version,
        verdicts=verdicts,
        claims=claimed,
        cancels=cancels(tables, owner),
        next_due=next_due,
    )


def cancels(tables: Tables, owner: int) -> list[int]:
    """Keys of this owner's running jobs that have a cancel request."""
    return [
        key
        for key in tables.index.running.get(owner, ())
        if tables.jobs[key].cancel_requested_at is not None
    ]


def promote(tables: Tables, now: Instant, *, limit: int) -> Promoted:
    """Promote due jobs of all queues to pending and cancel expired ones."""
    expired = promoted = 0
    while (row := tables.index.first_expiring()) is not None and row.expired(now):
        if expired == limit:
            return Promoted(promoted, expired, now, True)
        transitions.cancel(tables, row, Event.EXPIRE, now, claims.EXPIRED)
        expired += 1
    for queue in tables.index.waiting_queues():
        promoted += _promote_queue(tables, queue, now, limit - expired - promoted)
    times = [row.expires_at] if (row := tables.index.first_expiring()) is not None else []
    for queue in tables.index.waiting_queues():
        row = tables.index.first_due(queue)
        if row is not None:
            times.append(row.run_at)
    next_due = min((time for time in times if time is not None), default=None)
    return Promoted(promoted, expired, next_due, next_due is not None and next_due <= now)


def _promote_queue(tables: Tables, queue: str, now: Instant, limit: int) -> int:
    promoted = 0
    # Jobs that become due together leave their limit bucket in its order, not in that of run_at:
    # all of them wait in it first.
    lanes: dict[str, None] = {}
    keys: dict[str, None] = {}
    while promoted < limit:
        row = tables.index.first_due(queue)
        if row is None or row.run_at > now:
            break
        if row.expired(now):
            transitions.cancel(tables, row, Event.EXPIRE, now, claims.EXPIRED)
        else:
            buckets = row.candidate_buckets
            transitions.transition(
                tables,
                row,
                Event.PROMOTE,
                JobStatus.PENDING,
                now,
                hold_in=buckets[0] if buckets else None,
            )
            lanes |= {} if row.lane_bucket is None else {row.lane_bucket: None}
            keys |= {} if row.job.limit_key is None else {row.job.limit_key: None}
        promoted += 1
    for bucket in (*lanes, *keys):
        transitions.admit(tables, bucket, now)
    return promoted


def _claim_wanted(
    tables: Tables, request: Exchange, now: Instant
) -> tuple[list[ClaimedJob], Instant | None]:
    claimed: list[ClaimedJob] = []
    next_times: list[Instant] = []
    for want in request.want:
        _promote_queue(tables, want.queue, now, len(tables.jobs) + 1)
        queue = tables.queues.get(want.queue)
        if queue is not None and queue.paused:
            continue
        wanted = max(want.free, 0) + max(want.prefetch, 0)
        got: Sequence[ClaimedJob] = ()
        if not tables.gate(want.queue).closed(now):
            limited = LimitedClaim(tables, request, want, now)
            got = limited.claim()
            claimed.extend(got)
            next_times.extend(limited.next_times)
        if len(got) < wanted:
            next_due = _next_due(tables, want.queue, now)
            if next_due is not None:
                next_times.append(next_due)
    return claimed, min(next_times, default=None)


def _next_due(tables: Tables, queue: str, now: Instant) -> Instant | None:
    """When a queue that had fewer jobs than wanted may have more; None when not known."""
    waiting = tables.index.first_due(queue)
    gate = tables.gate(queue)
    if gate.until is None or not gate.closed(now):
        return None if waiting is None else waiting.run_at
    tracks = (None, *tables.index.tracks(queue))
    if any(tables.index.first_pending(queue, track=track) is not None for track in tracks):
        return gate.until
    return None if waiting is None else max(waiting.run_at, gate.until)
