"""Transitions of one job: the only row-wise code that changes a state.

Each transition is checked against the table of ``core.status`` first. Callers set times and errors
of the row before it and store the row after it.
"""

from collections.abc import Sequence
from typing import Final

from forge_jobs.backends.shared.error_groups import FailedAttempt, group_of
from forge_jobs.core import dead_letter, ids
from forge_jobs.core.errors import Invalid
from forge_jobs.core.job import ERRORS_KEPT, AttemptError
from forge_jobs.core.status import TERMINAL, TRANSITIONS, Attempts, Event, JobStatus

from . import dedupe_keys
from .details import Details
from .ports import JobTransaction, R

EXPIRED: Final = "expired before it could start"
DELETED: Final = "deleted while it was running"

_LEGAL: Final = frozenset(
    (rule.source, rule.event, rule.target, rule.attempts) for rule in TRANSITIONS
)
_ACTIVE: Final = (JobStatus.PENDING, JobStatus.RUNNING)
_HOLDS_SLOTS: Final = (*_ACTIVE, JobStatus.HELD)
_NEW_EPOCH: Final = (Event.CLAIM, Event.RELEASE, Event.REAP)


def check(source: JobStatus | None, event: Event, target: JobStatus | None, by: Attempts) -> None:
    """Raise Invalid for a transition that the table does not allow."""
    if (source, event, target, by) not in _LEGAL:
        raise Invalid(
            f"a job that is {source or 'new'} cannot become {target or 'gone'} by {event}"
            f" with its attempt {by}"
        )


def transition(
    tx: JobTransaction[R],
    row: R,
    event: Event,
    target: JobStatus,
    attempts: Attempts = Attempts.KEPT,
) -> None:
    """Change the state of a row. An illegal transition raises Invalid and changes nothing.

    Keeps the invariants: ``finished_at`` set if and only if terminal, an epoch that never
    decreases, a wait only while suspended. Updates dedupe keys, counters and limit buckets. A job
    that becomes dead stores its ``on_dead`` successor.
    """
    source = row.status
    check(source, event, target, attempts)
    match attempts:
        case Attempts.SPENT:
            row.attempts += 1
        case Attempts.GIVEN_BACK:
            row.attempts -= 1
        case Attempts.RESET:
            row.attempts = 0
        case Attempts.KEPT:
            pass
    row.status = target
    row.finished_at = tx.now if target in TERMINAL else None
    if source is JobStatus.RUNNING:
        _delete_cancel_request(tx, row)
    elif source is JobStatus.SUSPENDED:
        tx.steps.delete_wait(row.key)
    if event in _NEW_EPOCH:
        row.epoch += 1
        if event is not Event.CLAIM:
            # Nobody claimed the new epoch: a finish that names it is stale.
            row.owner = None
    tx.count(row, source, event)
    if target is JobStatus.PENDING:
        tx.notify_queues.add(row.queue)
    elif target in TERMINAL:
        dedupe_keys.ended(tx, row)
        if target is JobStatus.DEAD:
            _enqueue_dead_letter(tx, row)
    if row.is_bound:
        _update_buckets(tx, row, source, event)


def hold(tx: JobTransaction[R], row: R, bucket: str) -> None:
    """Let a pending job wait in a bucket."""
    transition(tx, row, Event.HOLD, JobStatus.HELD)
    row.bucket = bucket


def cancel(tx: JobTransaction[R], row: R, event: Event, reason: str) -> None:
    """Cancel a waiting job, on request or because it expired."""
    transition(tx, row, event, JobStatus.CANCELLED)
    row.last_error = reason


def expire(tx: JobTransaction[R], rows: Sequence[R]) -> None:
    """Cancel waiting jobs whose expiry has passed."""
    for row in rows:
        cancel(tx, row, Event.EXPIRE, EXPIRED)
    tx.store(rows)


def request_cancel(tx: JobTransaction[R], row: R, event: Event, reason: str) -> None:
    """Ask the owner of a running job to stop; keeps the first reason."""
    check(row.status, event, JobStatus.RUNNING, Attempts.KEPT)
    details = row.details()
    if details.cancel_at is None:
        details.cancel_at, details.cancel_reason = tx.now, reason
        row.set_details(details)
        tx.add_cancel(row)
    tx.raise_control_version()


def delete(tx: JobTransaction[R], rows: Sequence[R]) -> None:
    """Delete jobs that are not running, with their logs, payloads, steps and keys."""
    if not rows:
        return
    for row in rows:
        check(row.status, Event.DELETE, None, Attempts.KEPT)
        tx.counters.deleted(row.queue, row.kind, row.status)
        if row.dedupe_key is not None:
            tx.free_key(row)
        # A terminal job has no slot: nothing becomes free.
        buckets = () if row.status in TERMINAL else (row.lane_bucket(), row.limit_key)
        tx.touched_buckets.update(dict.fromkeys(one for one in buckets if one is not None))
    tx.delete(rows)


def add_error(
    tx: JobTransaction[R],
    row: R,
    details: Details,
    message: str,
    *,
    traceback: str | None = None,
    counted: bool,
) -> None:
    """Set the last error and add it to the bounded history of errors. ``counted``: the attempt
    failed, so that it is counted in its error group."""
    row.last_error = message
    group = group_of(message, traceback) if counted else None
    error = AttemptError(
        tx.now,
        row.attempts,
        message,
        started_at=row.started_at,
        due_at=row.run_at,
        owner=row.owner,
        group=None if group is None else group.id,
    )
    details.errors = (*details.errors, error)[-ERRORS_KEPT:]
    if group is not None:
        job_id = ids.job_id(row.key, row.enqueued_at, tx.tag)
        attempt = FailedAttempt(job_id, row.owner, row.kind, row.queue, message, group)
        tx.failures.append((row.key, attempt))


def _update_buckets(tx: JobTransaction[R], row: R, source: JobStatus, event: Event) -> None:
    """Mark the buckets of a bound job as touched if it becomes pending, or if it ended or waits for
    a later time and so freed its slots. A job that becomes pending is held first: the touched
    buckets admit jobs before the transaction ends."""
    if event is Event.HOLD or (row.status in _ACTIVE and source in _HOLDS_SLOTS):
        return
    buckets = [bucket for bucket in (row.lane_bucket(), row.limit_key) if bucket is not None]
    tx.touched_buckets.update(dict.fromkeys(buckets))
    if row.status is JobStatus.PENDING and buckets:
        hold(tx, row, buckets[0])


def _delete_cancel_request(tx: JobTransaction[R], row: R) -> None:
    if not row.has_details:
        return
    details = row.details()
    if details.cancel_at is not None:
        details.cancel_at = details.cancel_reason = None
        row.set_details(details)
        tx.delete_cancel(row)


def _enqueue_dead_letter(tx: JobTransaction[R], row: R) -> None:
    options = row.options()
    if options.on_dead is None:
        return
    job_id = ids.job_id(row.key, row.enqueued_at, tx.tag)
    letter = dead_letter.payload(
        job_id=job_id,
        kind=row.kind,
        queue=row.queue,
        attempts=row.attempts,
        error=row.last_error,
        payload=tx.payload(row),
        enqueued_at=row.enqueued_at,
        died_at=tx.now,
    )
    request = dead_letter.successor(
        options.on_dead, letter, parent=job_id, tags=options.tags, trace=options.trace
    )
    tx.insert([request])
