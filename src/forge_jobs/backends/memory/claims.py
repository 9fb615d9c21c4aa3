"""From pending to running and back: what exchanges, reapers and leaving processes do to claims."""

from typing import Final

from forge_jobs.core.decide import Finish, final_status, reaped
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import Claim, ClaimedJob
from forge_jobs.core.limits import scope_gate, task_limit
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Attempts, Event, JobStatus
from forge_jobs.core.throttle import SCOPE_CURVE, succeeded, throttle_delay_s, throttled
from forge_jobs.store.jobs import Note, Verdict

from . import dedupe_keys, transitions
from .rows import Row
from .tables import Tables

EXPIRED: Final = "expired before it could start"
_HANDED_BACK: Final = (Event.THROTTLE, Event.SNOOZE, Event.MISSING)


def claim(
    tables: Tables, row: Row, owner: int, number: int, *, start: bool, now: Instant
) -> ClaimedJob:
    """A pending job becomes this owner's."""
    row.started_at = None
    row.last_owner, row.exchange = owner, number
    transitions.transition(
        tables, row, Event.CLAIM, JobStatus.RUNNING, now, attempts=Attempts.SPENT, owner=owner
    )
    if start:
        mark_started(tables, row, now)
    return row.claimed()


def mark_started(tables: Tables, row: Row, now: Instant) -> None:
    """From here on an owner's death counts against the job."""
    if not row.started:
        row.started_at = now
        dedupe_keys.started(tables, row)


def mine(tables: Tables, owner: int, claim: Claim) -> Row | None:
    """The row of a claim, if the claim is still good."""
    row = tables.jobs.get(claim.key)
    return row if row is not None and row.held_by(owner, claim) else None


def finish(tables: Tables, owner: int, end: Finish, now: Instant, *, timed: bool = True) -> Verdict:
    """Write the end of a claim, if it still is this owner's to write."""
    row = tables.jobs.get(end.key)
    if row is None or row.epoch != end.epoch:
        return Verdict.STALE
    if row.owner != owner:
        ended_before = row.owner is None and row.last_owner == owner
        return Verdict.ALREADY if ended_before else Verdict.STALE
    mark_started(tables, row, after(now, -end.ran_s))
    stop = row.cancel_requested_at is not None
    target = final_status(end.status, cancel_requested=stop)
    delay_s = _throttle(tables, row, end, now) if end.event is Event.THROTTLE else end.delay_s
    if end.event is Event.MISSING and row.missing_since is None:
        row.missing_since = now
    row.crashes += end.event is Event.CRASH
    _note_error(row, end, now)
    given_back = end.event in _HANDED_BACK and target is JobStatus.SCHEDULED
    if target in (JobStatus.SCHEDULED, JobStatus.FAILED):
        row.run_at = after(now, delay_s or 0.0)
    elif target is JobStatus.CANCELLED:
        row.last_error = row.cancel_reason
    elif target is JobStatus.DONE:
        row.result = end.result
        _ease(tables, row, now)
    if timed:
        tables.books.ended(row, end, now)
    attempts = Attempts.GIVEN_BACK if given_back else Attempts.KEPT
    transitions.transition(tables, row, end.event, target, now, attempts=attempts)
    for job in end.jobs:
        transitions.insert(tables, job, now)
    return Verdict.APPLIED


def release(tables: Tables, row: Row, now: Instant) -> None:
    """Hand a claim back as if it had never been made."""
    if row.cancel_requested_at is not None:
        row.last_error = row.cancel_reason
        transitions.transition(tables, row, Event.RELEASE, JobStatus.CANCELLED, now)
    else:
        transitions.transition(
            tables, row, Event.RELEASE, JobStatus.PENDING, now, attempts=Attempts.GIVEN_BACK
        )


def reap(tables: Tables, row: Row, crash_note: str, now: Instant) -> JobStatus:
    """Take a job from an owner that is not alive; where it went."""
    target, left = reaped(
        started=row.started,
        attempts=row.attempts,
        max_attempts=row.job.max_attempts,
        cancel_requested=row.cancel_requested_at is not None,
    )
    if row.started:
        row.crashes += 1
        transitions.blame(row, crash_note, now)
    if target is JobStatus.CANCELLED:
        row.last_error = row.cancel_reason
    attempts = Attempts.KEPT if left == row.attempts else Attempts.GIVEN_BACK
    transitions.transition(tables, row, Event.REAP, target, now, attempts=attempts)
    return target


def note(tables: Tables, owner: int, said: Note) -> None:
    """Keep what a running handler said."""
    row = mine(tables, owner, said.claim)
    if row is None:
        return
    if said.progress is not None:
        row.progress = said.progress
    if said.progress_note is not None:
        row.progress_note = said.progress_note
    tables.say(row, said.lines)


def _throttle(tables: Tables, row: Row, end: Finish, now: Instant) -> float | None:
    row.throttles += 1
    if row.throttled_since is None:
        row.throttled_since = now
    if end.status is JobStatus.DEAD:
        return end.delay_s
    name = row.queue if end.scope is None else scope_gate(end.scope)
    gate, queue = tables.gate(name), tables.queues.get(row.queue)
    curve = None if end.scope is None else SCOPE_CURVE
    if queue is not None and queue.backoff_enabled:
        curve = Backoff(base_s=queue.backoff_base_s, max_s=queue.backoff_max_s)
    delay_s = throttle_delay_s(gate, end.delay_s, curve)
    tables.gates[name] = throttled(gate, now, delay_s)
    return delay_s


def _ease(tables: Tables, row: Row, now: Instant) -> None:
    """A success lets the throttles of its queue and its scopes fade."""
    limit = tables.limits.get(task_limit(row.job.kind))
    scopes = () if limit is None else limit.scopes
    for name in (row.queue, *map(scope_gate, scopes)):
        if name in tables.gates:
            tables.gates[name] = succeeded(tables.gate(name), now)


def _note_error(row: Row, end: Finish, now: Instant) -> None:
    if end.error is None:
        return
    if end.event is Event.MISSING and end.status is JobStatus.SCHEDULED:
        # It comes every few seconds during a deploy and would push the real errors out.
        row.last_error = end.error
    else:
        transitions.blame(row, end.error, now)
