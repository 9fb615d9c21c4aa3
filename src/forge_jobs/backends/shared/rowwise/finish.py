"""Ends claims row by row: finish, release and reap; and marks them as started."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from forge_jobs.core.decide import Finish, final_status, reaped
from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import Claim
from forge_jobs.core.limits import UNBOUNDED, scope_gate
from forge_jobs.core.status import Attempts, Event, JobStatus, targets
from forge_jobs.core.steps import FinishSteps
from forge_jobs.core.throttle import SCOPE_CURVE, succeeded, throttle_delay_s, throttled
from forge_jobs.store.jobs import Note, Verdict

from . import dedupe_keys, steps, transitions, waits
from .details import Details
from .ports import JobTransaction, R

_LEGAL: Final = frozenset(
    (event, target)
    for event in (
        Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE,
        Event.SUSPEND, Event.RESTART, Event.MISSING,
    )
    for target in targets(JobStatus.RUNNING, event)
)  # fmt: skip
_GIVES_ATTEMPT_BACK: Final = (
    Event.THROTTLE, Event.SNOOZE, Event.MISSING, Event.SUSPEND, Event.RESTART
)  # fmt: skip
_WAITS: Final = (JobStatus.SCHEDULED, JobStatus.SUSPENDED, JobStatus.PENDING)

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE_EVENT, _DONE_STATUS = Event.DONE, JobStatus.DONE


def check(finishes: Sequence[Finish]) -> None:
    """Raise Invalid for a finish that the table of transitions does not allow."""
    for finish in finishes:
        if finish.event is _DONE_EVENT and finish.status is _DONE_STATUS:
            continue
        if (finish.event, finish.status) not in _LEGAL:
            raise Invalid(f"a claim cannot end as {finish.status} by {finish.event}")
        extra = finish.steps
        if finish.event is Event.SUSPEND and (extra is None or extra.wait is None):
            raise Invalid("a claim cannot end by suspend without a wait")
        if finish.event is Event.RESTART and (extra is None or extra.payload is None):
            raise Invalid("a claim cannot end by restart without a payload")


def finish_row(
    tx: JobTransaction[R], owner: int, finish: Finish, row: R | None, *, timed: bool = True
) -> Verdict:
    """Finish one claim in its row, if owner and epoch are current."""
    if row is None or row.epoch != finish.epoch or row.owner != owner:
        return Verdict.STALE
    if row.status is not JobStatus.RUNNING:
        return Verdict.ALREADY
    start(tx, row, after(tx.now, -finish.ran_s))
    details = row.details()
    target = final_status(finish.status, cancel_requested=details.cancel_at is not None)
    delay_s = (
        _throttle(tx, row, details, finish) if finish.event is Event.THROTTLE else finish.delay_s
    )
    if finish.event is Event.MISSING:
        details.missing_since = details.missing_since or tx.now
    elif finish.event is not Event.DONE:
        # It ran: the next search for a worker that can run it has the whole budget again.
        details.missing_since = None
    details.crashes += finish.event is Event.CRASH
    _record_error(tx, row, details, finish, target)
    attempt_returned = finish.event in _GIVES_ATTEMPT_BACK and target in _WAITS
    if finish.steps is not None:
        attempt_returned |= finish.steps.attempt_returned and target is JobStatus.FAILED
        target = _store_steps(tx, row, details, finish.steps, finish.event, target)
    if target in (JobStatus.SCHEDULED, JobStatus.FAILED):
        row.run_at = after(tx.now, delay_s or 0.0)
        if finish.steps is not None and finish.steps.run_at is not None:
            row.run_at = finish.steps.run_at
    elif target is JobStatus.CANCELLED:
        row.last_error = details.cancel_reason
    elif target is JobStatus.DONE:
        row.set_result(finish.result)
    elif target is JobStatus.PENDING:
        row.run_at = tx.now
    row.set_details(details)
    transitions.transition(
        tx, row, finish.event, target, Attempts.GIVEN_BACK if attempt_returned else Attempts.KEPT
    )
    if target is JobStatus.PENDING:
        _hold_over_limit(tx, row)
    if timed:
        tx.counters.finished(
            row.queue, row.kind, [structs.replace(finish, enqueued_at=row.enqueued_at)]
        )
    if finish.tags:
        tx.counters.tagged(finish, target, timed=timed)
    if finish.jobs:
        tx.insert(finish.jobs)
    return Verdict.APPLIED


def _store_steps(
    tx: JobTransaction[R],
    row: R,
    details: Details,
    extra: FinishSteps,
    event: Event,
    target: JobStatus,
) -> JobStatus:
    """Apply what a finish adds to the history of its job; the state that the job goes to."""
    steps.mark(row)
    if event is Event.RESTART and target is JobStatus.PENDING:
        steps.restart(tx, row, extra)
        details.failed_runs = 0
    if extra.steps:
        steps.add_new(tx, row.key, extra.steps)
    if extra.attempt_returned and target is JobStatus.FAILED:
        details.failed_runs += 1
    if extra.wait is not None and target is JobStatus.SUSPENDED:
        row.run_at = waits.due_at(extra.run_at)
        target = waits.suspend(tx, row, extra.wait)
    return target


def start(tx: JobTransaction[R], row: R, at: Instant) -> None:
    """Mark a claim as started: from now on the death of its owner spends an attempt."""
    if row.started_at is None:
        row.started_at = at
        dedupe_keys.started(tx, row)


def release(tx: JobTransaction[R], row: R) -> None:
    """End a claim without spending its attempt: pending again, or cancelled if requested. Call
    ``steps.mark_found`` first."""
    details = row.details()
    if details.cancel_at is not None:
        row.last_error = details.cancel_reason
        transitions.transition(tx, row, Event.RELEASE, JobStatus.CANCELLED)
    else:
        transitions.transition(tx, row, Event.RELEASE, JobStatus.PENDING, Attempts.GIVEN_BACK)
        _hold_over_limit(tx, row)


def reap(tx: JobTransaction[R], row: R, crash_note: str) -> JobStatus:
    """Take a job from an owner that is not alive; the state it goes to. Call ``steps.mark_found``
    first."""
    details, started = row.details(), row.started_at is not None
    target, left = reaped(
        started=started,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        cancel_requested=details.cancel_at is not None,
    )
    if started:
        details.crashes += 1
        counted = target is not JobStatus.CANCELLED
        transitions.add_error(tx, row, details, crash_note, counted=counted)
    if target is JobStatus.CANCELLED:
        row.last_error = details.cancel_reason
    row.set_details(details)
    kept = Attempts.KEPT if left == row.attempts else Attempts.GIVEN_BACK
    transitions.transition(tx, row, Event.REAP, target, kept)
    if target is JobStatus.PENDING:
        _hold_over_limit(tx, row)
    return target


def _hold_over_limit(tx: JobTransaction[R], row: R) -> None:
    """Hold a pending job whose limit key was lowered below what ran. It is admitted again at once
    if the other jobs of this transaction left room."""
    key = row.limit_key
    if key is None:
        return
    slots = tx.max_per_key(key)
    if slots < UNBOUNDED and tx.slots_in_use(key, slots + 1) > slots:
        transitions.hold(tx, row, key)
        tx.touched_buckets[key] = None


def claimed_row(rows: Mapping[int, R], owner: int, claim: Claim) -> R | None:
    """The row of a claim; None if its owner or epoch is not current, or if it is not running."""
    row = rows.get(claim.key)
    if row is None or row.owner != owner or row.epoch != claim.epoch:
        return None
    return row if row.status is JobStatus.RUNNING else None


def write_note(tx: JobTransaction[R], row: R, note: Note) -> None:
    """Store progress and log lines of a running handler."""
    if note.progress is not None or note.progress_note is not None:
        details = row.details()
        if note.progress is not None:
            details.progress = note.progress
        if note.progress_note is not None:
            details.progress_note = note.progress_note
        row.set_details(details)
    if note.lines:
        tx.append_log(row, note.lines)


def gate_of(finish: Finish) -> str:
    """The gate that a throttle closes: that of its scope, else that of its queue."""
    return finish.queue if finish.scope is None else scope_gate(finish.scope)


def ease_gate(tx: JobTransaction[R], name: str) -> None:
    """Record a success behind a gate that was throttled recently."""
    gate = tx.gate(name)
    eased = succeeded(gate, tx.now)
    if eased != gate:
        tx.set_gate(name, eased)


def _throttle(tx: JobTransaction[R], row: R, details: Details, finish: Finish) -> float | None:
    details.throttles += 1
    if details.throttled_since is None:
        details.throttled_since = tx.now
    if finish.status is JobStatus.DEAD:
        return finish.delay_s
    name = row.queue if finish.scope is None else scope_gate(finish.scope)
    gate, curve = tx.gate(name), None if finish.scope is None else SCOPE_CURVE
    delay_s = throttle_delay_s(gate, finish.delay_s, tx.backoff(row.queue) or curve)
    tx.set_gate(name, throttled(gate, tx.now, delay_s))
    return delay_s


def _record_error(
    tx: JobTransaction[R], row: R, details: Details, finish: Finish, target: JobStatus
) -> None:
    if finish.error is None:
        return
    if finish.event is Event.MISSING and finish.status is JobStatus.SCHEDULED:
        # It recurs every few seconds during a deploy and would displace the real errors.
        row.last_error = finish.error
    else:
        counted = target is not JobStatus.CANCELLED
        transitions.add_error(
            tx, row, details, finish.error, traceback=finish.traceback, counted=counted
        )
        if finish.traceback is not None:
            tx.add_traceback(row, finish.traceback)
