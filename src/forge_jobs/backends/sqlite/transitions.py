"""Transitions of rows: the only module that changes states, apart from the short paths.

Rows are loaded together, changed one by one by the table of ``core.status``, and stored together.
The short paths of an exchange (``claim`` and ``finish``) do the same for plain jobs in one
statement each; ``promote`` does it for plain jobs that become due.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core import dead_letter, ids
from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ERRORS_KEPT, AttemptError
from forge_jobs.core.status import TERMINAL, TRANSITIONS, Attempts, Event, JobStatus

from . import dedupe_keys, enqueue
from .io.transaction import Tx
from .rows import Details, Row

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "transitions.sql")

EXPIRED: Final = "expired before it could start"
DELETED: Final = "deleted while it was running"

_LEGAL: Final = frozenset(
    (rule.source, rule.event, rule.target, rule.attempts) for rule in TRANSITIONS
)
_ACTIVE: Final = (JobStatus.PENDING, JobStatus.RUNNING)
_HOLDS_SLOTS: Final = (*_ACTIVE, JobStatus.HELD)
_NEW_EPOCH: Final = (Event.CLAIM, Event.RELEASE, Event.REAP)
_rows_of = msgspec.json.Decoder(list[Row]).decode
_keys_of = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.encode


def read_keys(text: str) -> list[int]:
    """Keys from a JSON list."""
    return _keys_of(text)


def as_json(values: object) -> str:
    """Values as the JSON text that statements take."""
    return _encode(values).decode()


def load(tx: Tx, keys: Iterable[int]) -> dict[int, Row]:
    """The rows with these keys, by key; missing ones are left out."""
    return load_text(tx, as_json(list(keys)))


def load_text(tx: Tx, keys: str) -> dict[int, Row]:
    """The same for keys that are JSON already."""
    tx.ingest()
    (found,) = tx.row(SQL["load_rows"], (keys,))
    return {row.key: row for row in _rows_of(found)}


def store(tx: Tx, rows: Sequence[Row]) -> None:
    """Write rows back after their transitions."""
    if not rows:
        return
    bound: list[Row] = []
    for row in rows:
        row.derive_columns()
        if row.is_bound:
            row.derive_bound_columns()
            bound.append(row)
    tx.execute(SQL["store_rows"], (as_json(rows),))
    if bound:
        tx.execute(SQL["store_bound_columns"], (as_json(bound),))


def check(source: JobStatus | None, event: Event, target: JobStatus | None, by: Attempts) -> None:
    """Raise Invalid for a transition that the table does not allow."""
    if (source, event, target, by) not in _LEGAL:
        raise Invalid(
            f"a job that is {source or 'new'} cannot become {target or 'gone'} by {event}"
            f" with its attempt {by}"
        )


def transition(
    tx: Tx, row: Row, event: Event, target: JobStatus, attempts: Attempts = Attempts.KEPT
) -> None:
    """Change the state of a row; the caller sets times and errors before, and stores it after."""
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
    row.epoch += event in _NEW_EPOCH
    row.finished_at = tx.now if target in TERMINAL else None
    if source is JobStatus.RUNNING:
        _delete_cancel_request(tx, row)
    tx.counters.transitioned(row.queue, row.kind, source, target)
    if target is JobStatus.PENDING:
        tx.notify_queues.add(row.queue)
    elif target in TERMINAL:
        dedupe_keys.ended(tx, row)
        if target is JobStatus.DEAD:
            _enqueue_dead_letter(tx, row)
    if row.is_bound:
        _update_buckets(tx, row, source, event)


def hold(tx: Tx, row: Row, bucket: str) -> None:
    """Let a pending job wait in a bucket."""
    transition(tx, row, Event.HOLD, JobStatus.HELD)
    row.bucket = bucket


def _update_buckets(tx: Tx, row: Row, source: JobStatus, event: Event) -> None:
    """Mark the buckets of a bound job as touched if it becomes pending, or if it ended or waits for
    a later time and so freed its slots. A job that becomes pending is held first: the touched
    buckets admit jobs before the transaction ends."""
    if event is Event.HOLD or (row.status in _ACTIVE and source in _HOLDS_SLOTS):
        return
    buckets = [bucket for bucket in (row.lane_bucket(), row.limit_key) if bucket is not None]
    tx.touched_buckets.update(dict.fromkeys(buckets))
    if row.status is JobStatus.PENDING and buckets:
        hold(tx, row, buckets[0])


def cancel(tx: Tx, row: Row, event: Event, reason: str) -> None:
    """Cancel a waiting job, on request or because it expired."""
    transition(tx, row, event, JobStatus.CANCELLED)
    row.last_error = reason


def request_cancel(tx: Tx, row: Row, event: Event, reason: str) -> None:
    """Ask the owner of a running job to stop; keeps the first reason."""
    check(row.status, event, JobStatus.RUNNING, Attempts.KEPT)
    details = row.details()
    if details.cancel_at is None:
        details.cancel_at, details.cancel_reason = tx.now, reason
        row.set_details(details)
        tx.execute(SQL["add_cancel"], (row.owner, row.key))
    tx.raise_control_version()


def add_error(row: Row, details: Details, message: str, now: Instant) -> None:
    """Add to the bounded history of errors."""
    row.last_error = message
    error = AttemptError(now, row.attempts, message)
    details.errors = (*details.errors, error)[-ERRORS_KEPT:]


def delete(tx: Tx, rows: Sequence[Row]) -> None:
    """Delete jobs that are not running, with their logs, payloads and keys."""
    if not rows:
        return
    for row in rows:
        check(row.status, Event.DELETE, None, Attempts.KEPT)
        tx.counters.deleted(row.queue, row.kind, row.status)
        dedupe_keys.release(tx, row)
        for bucket in (row.lane_bucket(), row.limit_key):
            if bucket is not None:
                tx.touched_buckets[bucket] = None
    keys = as_json([row.key for row in rows])
    for name in ("delete_jobs", "delete_bodies", "delete_logs"):
        tx.execute(SQL[name], (keys,))


def promote(tx: Tx, queue: str, limit: int) -> int:
    """Make due jobs of a queue pending and cancel expired ones; returns how many."""
    tx.ingest()
    due, expired, bound = tx.row(SQL["due"], (queue, tx.now, limit))
    due_keys = read_keys(due)
    if not due_keys:
        return 0
    handled = set[int]()
    if expired != "[]":
        expire(tx, expired)
        handled.update(read_keys(expired))
    if bound != "[]":
        _promote_bound(tx, [key for key in read_keys(bound) if key not in handled])
        handled.update(read_keys(bound))
    if handled:
        due = as_json([key for key in due_keys if key not in handled])
    (groups,) = tx.row(SQL["count_by_state"], (due,))
    for queue_name, kind, status, jobs in _groups_of(groups):
        tx.counters.transitioned(queue_name, kind, status, JobStatus.PENDING, jobs)
        tx.notify_queues.add(queue_name)
    tx.execute(SQL["make_pending"], (due,))
    return len(due_keys)


def _promote_bound(tx: Tx, due_keys: Sequence[int]) -> None:
    """Promote jobs with a lane or a limit key: they are held until their bucket admits them."""
    rows = list(load(tx, due_keys).values())
    for row in rows:
        transition(tx, row, Event.PROMOTE, JobStatus.PENDING)
    store(tx, rows)


def expire(tx: Tx, expired_keys: str) -> int:
    """Cancel waiting jobs whose expiry has passed."""
    rows = load_text(tx, expired_keys)
    for row in rows.values():
        cancel(tx, row, Event.EXPIRE, EXPIRED)
    store(tx, list(rows.values()))
    return len(rows)


def _delete_cancel_request(tx: Tx, row: Row) -> None:
    if row.details_text is None:
        return
    details = row.details()
    if details.cancel_at is not None:
        details.cancel_at = details.cancel_reason = None
        row.set_details(details)
        tx.execute(SQL["delete_cancel"], (row.owner, row.key))


def _enqueue_dead_letter(tx: Tx, row: Row) -> None:
    options = row.options()
    if options.on_dead is None:
        return
    (payload,) = tx.row(SQL["payload"], (row.key,))
    letter = dead_letter.payload(
        job_id=ids.job_id(row.key, row.enqueued_at, tx.tag),
        kind=row.kind,
        queue=row.queue,
        attempts=row.attempts,
        error=row.last_error,
        payload=payload,
        enqueued_at=row.enqueued_at,
        died_at=tx.now,
    )
    dead_letter_job = dead_letter.successor(
        options.on_dead, letter, tags=options.tags, trace=options.trace
    )
    enqueue.insert(tx, [dead_letter_job])


_groups_of = msgspec.json.Decoder(list[tuple[str, str, JobStatus, int]]).decode
