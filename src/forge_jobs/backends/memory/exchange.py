"""The hot call: end claims, hand back, mark started, and claim more, in one transaction."""

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
    """One round of a worker process."""
    for end in request.finish:
        if not transitions.is_outcome(end.event, end.status):
            raise Invalid(f"a claim cannot end as {end.status} by {end.event}")
    owner = request.owner
    for said in request.notes:
        claims.note(tables, owner, said)
    timed = request.timed
    verdicts = [claims.finish(tables, owner, end, now, timed=timed) for end in request.finish]
    for claim in request.release:
        row = claims.mine(tables, owner, claim)
        if row is not None:
            claims.release(tables, row, now)
    for claim in request.started:
        row = claims.mine(tables, owner, claim)
        if row is not None:
            claims.mark_started(tables, row, now)
    alive = tables.alive(owner, now)
    claimed: list[ClaimedJob] = []
    next_due: Instant | None = None
    if alive:
        claimed, next_due = _serve(tables, request, now)
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
    """Keys of this owner's running jobs that were asked to stop."""
    return [
        key
        for key in tables.lines.running.get(owner, ())
        if tables.jobs[key].cancel_requested_at is not None
    ]


def promote(tables: Tables, now: Instant, *, limit: int) -> Promoted:
    """Bring due jobs of all queues to pending and expired ones to their end."""
    expired = promoted = 0
    while (row := tables.lines.first_expiring()) is not None and row.expired(now):
        if expired == limit:
            return Promoted(promoted, expired, now, True)
        transitions.cancel(tables, row, Event.EXPIRE, now, claims.EXPIRED)
        expired += 1
    for queue in tables.lines.waiting_queues():
        promoted += _promote_queue(tables, queue, now, limit - expired - promoted)
    times = [row.expires_at] if (row := tables.lines.first_expiring()) is not None else []
    for queue in tables.lines.waiting_queues():
        row = tables.lines.first_due(queue)
        if row is not None:
            times.append(row.run_at)
    next_due = min((time for time in times if time is not None), default=None)
    return Promoted(promoted, expired, next_due, next_due is not None and next_due <= now)


def _promote_queue(tables: Tables, queue: str, now: Instant, limit: int) -> int:
    promoted = 0
    # Jobs that come due together go on in the order of their lot, not in that of their times.
    lanes: dict[str, None] = {}
    keys: dict[str, None] = {}
    while promoted < limit:
        row = tables.lines.first_due(queue)
        if row is None or row.run_at > now:
            break
        if row.expired(now):
            transitions.cancel(tables, row, Event.EXPIRE, now, claims.EXPIRED)
        else:
            lots = row.bound_by
            first = lots[0] if lots else None
            transitions.transition(
                tables, row, Event.PROMOTE, JobStatus.PENDING, now, wait_in=first
            )
            lanes |= {} if row.lane_bucket is None else {row.lane_bucket: None}
            keys |= {} if row.job.limit_key is None else {row.job.limit_key: None}
        promoted += 1
    for lot in (*lanes, *keys):
        transitions.admit(tables, lot, now)
    return promoted


def _serve(
    tables: Tables, request: Exchange, now: Instant
) -> tuple[list[ClaimedJob], Instant | None]:
    claimed: list[ClaimedJob] = []
    openings: list[Instant] = []
    for want in request.want:
        _promote_queue(tables, want.queue, now, len(tables.jobs) + 1)
        queue = tables.queues.get(want.queue)
        if queue is not None and queue.paused:
            continue
        asked = max(want.free, 0) + max(want.prefetch, 0)
        got: Sequence[ClaimedJob] = ()
        if not tables.gate(want.queue).closed(now):
            serving = LimitedClaim(tables, request, want, now)
            got = serving.claim()
            claimed.extend(got)
            openings.extend(serving.openings)
        if len(got) < asked:
            opening = _opening(tables, want.queue, now)
            if opening is not None:
                openings.append(opening)
    return claimed, min(openings, default=None)


def _opening(tables: Tables, queue: str, now: Instant) -> Instant | None:
    """When a queue that had too little for a worker may have more."""
    waiting = tables.lines.first_due(queue)
    gate = tables.gate(queue)
    if gate.until is None or not gate.closed(now):
        return None if waiting is None else waiting.run_at
    lines = (None, *tables.lines.tracks(queue))
    if any(tables.lines.first_pending(queue, track=track) is not None for track in lines):
        return gate.until
    return None if waiting is None else max(waiting.run_at, gate.until)
