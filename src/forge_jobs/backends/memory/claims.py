"""Claims: made by ``exchange``; ended by a finish, a release, the reaper or a deregistration."""

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
_GIVES_ATTEMPT_BACK: Final = (Event.THROTTLE, Event.SNOOZE, Event.MISSING)


def claim(
    tables: Tables, row: Row, owner: int, number: int, *, start: bool, now: Instant
) -> ClaimedJob:
    """Claim a pending job for an owner: epoch and attempts rise by one."""
    row.started_at = None
    row.last_owner, row.exchange = owner, number
    transitions.transition(
        tables, row, Event.CLAIM, JobStatus.RUNNING, now, attempts=Attempts.SPENT, owner=owner
    )
    if start:
        mark_started(tables, row, now)
    return row.claimed()


def mark_started(tables: Tables, row: Row, now: Instant) -> None:
    """Mark a claim as started: from now on the death of its owner counts as a crash of the job."""
    if not row.started:
        row.started_at = now
        dedupe_keys.release_on_start(tables, row)


def owned_row(tables: Tables, owner: int, claim: Claim) -> Row | None:
    """The row of a claim; None when its owner or epoch is no longer current."""
    row = tables.jobs.get(claim.key)
    return row if row is not None and row.owned_by(owner, claim) else None


def apply_finish(
    tables: Tables, owner: int, finish: Finish, now: Instant, *, timed: bool = True
) -> Verdict:
    """Write the end of a claim, if it still is this owner's to write."""
    row = tables.jobs.get(finish.key)
    if row is None or row.epoch != finish.epoch:
        return Verdict.STALE
    if row.owner != owner:
        written_before = row.owner is None and row.last_owner == owner
        return Verdict.ALREADY if written_before else Verdict.STALE
    mark_started(tables, row, after(now, -finish.ran_s))
    stop = row.cancel_requested_at is not None
    target = final_status(finish.status, cancel_requested=stop)
    delay_s = (
        _apply_throttle(tables, row, finish, now)
        if finish.event is Event.THROTTLE
        else finish.delay_s
    )
    if finish.event is Event.MISSING and row.missing_since is None:
        row.missing_since = now
    row.crashes += finish.event is Event.CRASH
    _record_error(row, finish, now)
    given_back = finish.event in _GIVES_ATTEMPT_BACK and target is JobStatus.SCHEDULED
    if target in (JobStatus.SCHEDULED, JobStatus.FAILED):
        row.run_at = after(now, delay_s or 0.0)
    elif target is JobStatus.CANCELLED:
        row.last_error = row.cancel_reason
    elif target is JobStatus.DONE:
        row.result = finish.result
        _decay_gates(tables, row, now)
    if timed:
        tables.counters.count_times(row, finish, now)
    attempts = Attempts.GIVEN_BACK if given_back else Attempts.KEPT
    transitions.transition(tables, row, finish.event, target, now, attempts=attempts)
    for job in finish.jobs:
        transitions.insert(tables, job, now)
    return Verdict.APPLIED


def release(tables: Tables, row: Row, now: Instant) -> None:
    """End a claim without spending its attempt: pending again, or cancelled if requested."""
    if row.cancel_requested_at is not None:
        row.last_error = row.cancel_reason
        transitions.transition(tables, row, Event.RELEASE, JobStatus.CANCELLED, now)
    else:
        transitions.transition(
            tables, row, Event.RELEASE, JobStatus.PENDING, now, attempts=Attempts.GIVEN_BACK
        )


def reap(tables: Tables, row: Row, crash_note: str, now: Instant) -> JobStatus:
    """Take a job from an owner that is not alive; the state it goes to."""
    target, left = reaped(
        started=row.started,
        attempts=row.attempts,
        max_attempts=row.job.max_attempts,
        cancel_requested=row.cancel_requested_at is not None,
    )
    if row.started:
        row.crashes += 1
        transitions.record_error(row, crash_note, now)
    if target is JobStatus.CANCELLED:
        row.last_error = row.cancel_reason
    attempts = Attempts.KEPT if left == row.attempts else Attempts.GIVEN_BACK
    transitions.transition(tables, row, Event.REAP, target, now, attempts=attempts)
    return target


def apply_note(tables: Tables, owner: int, note: Note) -> None:
    """Store the progress and log lines of a running handler; ignored for a stale claim."""
    row = owned_row(tables, owner, note.claim)
    if row is None:
        return
    if note.progress is not None:
        row.progress = note.progress
    if note.progress_note is not None:
        row.progress_note = note.progress_note
    tables.append_log(row, note.lines)


def _apply_throttle(tables: Tables, row: Row, finish: Finish, now: Instant) -> float | None:
    row.throttles += 1
    if row.throttled_since is None:
        row.throttled_since = now
    if finish.status is JobStatus.DEAD:
        return finish.delay_s
    name = row.queue if finish.scope is None else scope_gate(finish.scope)
    gate, queue = tables.gate(name), tables.queues.get(row.queue)
    curve = None if finish.scope is None else SCOPE_CURVE
    if queue is not None and queue.backoff_enabled:
        curve = Backoff(base_s=queue.backoff_base_s, max_s=queue.backoff_max_s)
    delay_s = throttle_delay_s(gate, finish.delay_s, curve)
    tables.gates[name] = throttled(gate, now, delay_s)
    return delay_s


def _decay_gates(tables: Tables, row: Row, now: Instant) -> None:
    """After a success, reset the gates of its queue and scopes that have been open long enough."""
    limit = tables.limits.get(task_limit(row.job.kind))
    scopes = () if limit is None else limit.scopes
    for name in (row.queue, *map(scope_gate, scopes)):
        if name in tables.gates:
            tables.gates[name] = succeeded(tables.gate(name), now)


def _record_error(row: Row, finish: Finish, now: Instant) -> None:
    if finish.error is None:
        return
    if finish.event is Event.MISSING and finish.status is JobStatus.SCHEDULED:
        # It recurs every few seconds during a deploy and would push real errors out.
        row.last_error = finish.error
    else:
        transitions.record_error(row, finish.error, now)
