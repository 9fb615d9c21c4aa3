"""The actions of operators on jobs: cancel, retry, run now, reschedule, delete."""

from collections.abc import Mapping, Sequence
from enum import Enum

from forge_jobs.core.instant import Instant
from forge_jobs.core.selection import Acted, BulkAction, Cursor
from forge_jobs.core.status import RETRYABLE, TERMINAL, WAITING, Attempts, Event, JobStatus

from . import dedupe_keys, transitions
from .details import Details
from .ports import JobTransaction, R


class Effect(Enum):
    """What an action did to one job. DELETED ones are deleted together afterwards. KEY_TAKEN:
    skipped, because another live job holds its dedupe key."""

    CHANGED = "changed"
    REQUESTED = "requested"
    SKIPPED = "skipped"
    KEY_TAKEN = "key taken"
    DELETED = "deleted"


def act(
    tx: JobTransaction[R],
    action: BulkAction,
    reason: str,
    keys: Sequence[int],
    rows: Mapping[int, R],
    *,
    run_at: Instant,
    missing: int,
    following: Cursor | None,
) -> Acted:
    """Apply an action to these jobs, in the order of ``keys``; ``run_at`` is for RESCHEDULE."""
    effects: dict[Effect, list[R]] = {effect: [] for effect in Effect}
    for key in keys:
        row = rows[key]
        effect = _apply(tx, action, row, reason, run_at)
        effects[effect].append(row)
        if row.dedupe_key is not None and effect is Effect.CHANGED:
            # Its stored state decides about the next job with the same dedupe key.
            tx.store([row])
    tx.store(effects[Effect.CHANGED] + effects[Effect.REQUESTED])
    transitions.delete(tx, effects[Effect.DELETED])
    return Acted(
        changed=len(effects[Effect.CHANGED]) + len(effects[Effect.DELETED]),
        requested=len(effects[Effect.REQUESTED]),
        skipped=len(effects[Effect.SKIPPED]) + len(effects[Effect.KEY_TAKEN]),
        key_taken=len(effects[Effect.KEY_TAKEN]),
        missing=missing,
        next=following,
    )


def _apply(
    tx: JobTransaction[R], action: BulkAction, row: R, reason: str, run_at: Instant
) -> Effect:
    match action:
        case BulkAction.CANCEL:
            return _cancel(tx, row, reason)
        case BulkAction.RETRY:
            return retry(tx, row)
        case BulkAction.RUN_NOW:
            return _run_now(tx, row)
        case BulkAction.RESCHEDULE:
            return _reschedule(tx, row, run_at)
        case BulkAction.DELETE:
            return _delete(tx, row)


def _cancel(tx: JobTransaction[R], row: R, reason: str) -> Effect:
    if row.status in TERMINAL:
        return Effect.SKIPPED
    if row.status is JobStatus.RUNNING:
        transitions.request_cancel(tx, row, Event.CANCEL, reason)
        return Effect.REQUESTED
    transitions.cancel(tx, row, Event.CANCEL, reason)
    return Effect.CHANGED


def retry(tx: JobTransaction[R], row: R) -> Effect:
    """Make a failed, dead or cancelled job pending, with all its attempts."""
    if row.status not in RETRYABLE:
        return Effect.SKIPPED
    if dedupe_keys.is_taken(tx, row):
        return Effect.KEY_TAKEN
    details = row.details()
    row.run_at = tx.now
    row.set_details(
        Details(
            errors=details.errors, progress=details.progress, progress_note=details.progress_note
        )
    )
    row.set_result(None)
    # An old expiry would cancel the job again before it could run.
    row.drop_expiry(tx.now)
    transitions.transition(tx, row, Event.RETRY, JobStatus.PENDING, Attempts.RESET)
    if row.dedupe_key is not None:
        tx.take_key(row)
    return Effect.CHANGED


def _run_now(tx: JobTransaction[R], row: R) -> Effect:
    if row.status not in (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.SUSPENDED):
        return Effect.SKIPPED
    row.run_at = tx.now
    transitions.transition(tx, row, Event.RUN_NOW, JobStatus.PENDING)
    return Effect.CHANGED


def _reschedule(tx: JobTransaction[R], row: R, run_at: Instant) -> Effect:
    if row.status not in WAITING:
        return Effect.SKIPPED
    row.run_at = run_at
    if row.status in (JobStatus.PENDING, JobStatus.HELD):
        transitions.transition(tx, row, Event.RESCHEDULE, JobStatus.SCHEDULED)
    tx.notify_queues.add(row.queue)
    return Effect.CHANGED


def _delete(tx: JobTransaction[R], row: R) -> Effect:
    if row.status is JobStatus.RUNNING:
        transitions.request_cancel(tx, row, Event.DELETE, transitions.DELETED)
        return Effect.REQUESTED
    return Effect.DELETED
