"""The hot call: finish, release and start claims, and claim more jobs, in one transaction."""

from collections.abc import Sequence

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim, ClaimedJob
from forge_jobs.core.limits import UNBOUNDED, scope_gate, task_limit
from forge_jobs.core.status import Event
from forge_jobs.store.jobs import Exchange, Exchanged, Verdict

from . import events, finish, promotion, steps
from .limited_claim import LimitedClaim
from .rows import Row
from .tables import Tables
from .transaction import Transaction


def exchange(tx: Transaction, request: Exchange) -> Exchanged:
    """One exchange of a worker process, in the order that ``JobStore.exchange`` defines."""
    finish.check(request.finish)
    owner = request.owner
    for note in request.notes:
        row = _claimed(tx, owner, note.claim)
        if row is not None:
            finish.write_note(tx, row, note)
            tx.store([row])
    answers, checks = steps.exchange(tx, request)
    verdicts = [_finish(tx, request, position) for position in range(len(request.finish))]
    for claim in request.release:
        row = _claimed(tx, owner, claim)
        if row is not None:
            steps.mark_found(tx, [row])
            finish.release(tx, row)
            tx.store([row])
    for claim in request.started:
        row = _claimed(tx, owner, claim)
        if row is not None:
            finish.start(tx, row, tx.now)
            tx.store([row])
    events.deliver(tx, events.MAX_RESUMED)
    alive = tx.tables.alive(owner, tx.now)
    claimed: list[ClaimedJob] = []
    next_due: Instant | None = None
    if alive:
        claimed, next_due = _claim_wanted(tx, request)
    return Exchanged(
        now=tx.now,
        alive=alive,
        control_version=tx.tables.control_version,
        verdicts=verdicts,
        claims=claimed,
        cancels=cancels(tx.tables, owner),
        next_due=next_due,
        steps=answers,
        waits=checks,
    )


def cancels(tables: Tables, owner: int) -> list[int]:
    """Keys of this owner's running jobs that have a cancel request."""
    rows = (tables.jobs[key] for key in tables.index.running(owner))
    return [row.key for row in rows if row.details().cancel_at is not None]


def _claimed(tx: Transaction, owner: int, claim: Claim) -> Row | None:
    return finish.claimed_row(tx.load([claim.key]), owner, claim)


def _finish(tx: Transaction, request: Exchange, position: int) -> Verdict:
    item = request.finish[position]
    row = tx.load([item.key]).get(item.key)
    verdict = finish.finish_row(tx, request.owner, item, row, timed=request.timed)
    if row is not None and verdict is Verdict.APPLIED:
        tx.store([row])
        if item.event is Event.DONE:
            _ease_gates(tx, row)
    return verdict


def _ease_gates(tx: Transaction, row: Row) -> None:
    """After a success, ease the gates of its queue and of its task's scopes."""
    limit = tx.tables.limits.get(task_limit(row.kind))
    scopes = () if limit is None else limit.scopes
    for name in (row.queue, *map(scope_gate, scopes)):
        finish.ease_gate(tx, name)


def _claim_wanted(tx: Transaction, request: Exchange) -> tuple[list[ClaimedJob], Instant | None]:
    tables = tx.tables
    claimed: list[ClaimedJob] = []
    next_times: list[Instant] = []
    # Promotes first, in all queues, and then admits held jobs to the slots that the finishes freed,
    # so that a job that is due by now keeps its turn in its lane.
    promotion.promote_queues(tx, [want.queue for want in request.want], UNBOUNDED)
    for want in request.want:
        queue = tables.queues.get(want.queue)
        if queue is not None and queue.paused:
            continue
        wanted = max(want.free, 0) + max(want.prefetch, 0)
        got: Sequence[ClaimedJob] = ()
        if not tables.gate(want.queue).closed(tx.now):
            limited = LimitedClaim(tx, request, want)
            got = limited.claim()
            claimed.extend(got)
            next_times.extend(limited.next_times)
        if len(got) < wanted:
            next_due = _next_due(tables, want.queue, tx.now)
            if next_due is not None:
                next_times.append(next_due)
    return claimed, min(next_times, default=None)


def _next_due(tables: Tables, queue: str, now: Instant) -> Instant | None:
    """When a queue that had fewer jobs than wanted may have more; None when not known."""
    waiting = tables.index.first_due(queue)
    gate = tables.gate(queue)
    if gate.until is None or not gate.closed(now):
        return None if waiting is None else waiting[0]
    if tables.index.tracks(queue):
        return gate.until
    return None if waiting is None else max(waiting[0], gate.until)
