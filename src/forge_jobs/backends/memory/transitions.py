"""The only module that changes a job's state. Each transition is checked against the table first.

Callers pass the event and the target state. They write times, errors and counters of the row
themselves, before the transition, because the row is indexed by its ``run_at``.
"""

from bisect import bisect_left
from typing import Final

from forge_jobs.core import dead_letter, ids
from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import ERRORS_KEPT, AttemptError, Enqueued, NewJob
from forge_jobs.core.status import TERMINAL, TRANSITIONS, Attempts, Event, JobStatus

from . import dedupe_keys
from .rows import Row
from .tables import Tables

_LEGAL: Final = frozenset(
    (rule.source, rule.event, rule.target, rule.attempts) for rule in TRANSITIONS
)
# A job in one of these states becomes pending or running without a check for room: it has it.
_HAS_ROOM: Final = (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.HELD)
MAX_ADMITTED: Final = 1_000
_NEW_EPOCH: Final = (Event.CLAIM, Event.RELEASE, Event.REAP)
_OUTCOMES: Final = frozenset(
    (rule.event, rule.target)
    for rule in TRANSITIONS
    if rule.event
    in (
        Event.DONE,
        Event.FAIL,
        Event.DIE,
        Event.CRASH,
        Event.THROTTLE,
        Event.SNOOZE,
        Event.MISSING,
    )
)


def is_outcome(event: Event, target: JobStatus) -> bool:
    """Whether a worker may finish its claim with this event and state."""
    return (event, target) in _OUTCOMES


def insert(tables: Tables, job: NewJob, now: Instant) -> Enqueued:
    """Store a job. If its dedupe key is taken, store nothing and return the job that holds it."""
    existing = dedupe_keys.holder(tables, job, now)
    if existing is not None:
        return Enqueued(existing.key, existing.id, True, existing.status)
    run_at = after(now, job.delay_s) if job.run_at is None else job.run_at
    expires_at = job.expires_at
    if expires_at is None and job.expires_s is not None:
        expires_at = after(now, job.expires_s)
    status = JobStatus.SCHEDULED if run_at > now else JobStatus.PENDING
    tables.last_key += 1
    key = tables.last_key
    row = Row(key, ids.job_id(key, now, tables.tag), job, now, run_at, expires_at, status)
    row.track = job.kind if job.track else None
    if status is JobStatus.PENDING:
        row.limit_bucket = _bucket_at_insert(tables, row)
        if row.limit_bucket is not None:
            row.status = status = JobStatus.HELD
    _check(None, Event.ENQUEUE, status, Attempts.KEPT)
    tables.jobs[key] = row
    tables.keys.append(key)
    dedupe_keys.acquire(tables, row)
    tables.index.add(row)
    tables.counters.count_insert(row, now)
    tables.notify_queue(job.queue)
    return Enqueued(key, row.id, False, status)


def transition(
    tables: Tables,
    row: Row,
    event: Event,
    target: JobStatus,
    now: Instant,
    *,
    attempts: Attempts = Attempts.KEPT,
    owner: int | None = None,
    bucket: str | None = None,
    hold_in: str | None = None,
) -> None:
    """Apply one transition. An illegal one raises Invalid and changes nothing.

    Keeps the invariants: owner set if and only if running, ``finished_at`` set if and only if
    terminal, an epoch that never decreases. Updates dedupe keys, counters and indexes. A job that
    becomes dead stores its ``on_dead`` successor. A job that becomes due while its lane or limit
    key is full is held at once. A job that leaves its lane or limit key admits the next ones.

    ``bucket`` is the limit bucket of a job that becomes held. ``hold_in`` makes a due job wait in
    that bucket, whether or not it has room; the caller then admits the bucket's jobs in order.
    """
    source = row.status
    _check(source, event, target, attempts)
    if hold_in is None and target is JobStatus.PENDING and source not in _HAS_ROOM:
        hold_in = tables.index.limit_buckets.bucket_for(row, tables.limits)
    tables.index.remove_entries(row)
    row.limit_bucket = bucket
    match attempts:
        case Attempts.SPENT:
            row.attempts += 1
        case Attempts.GIVEN_BACK:
            row.attempts -= 1
        case Attempts.RESET:
            row.attempts = 0
        case Attempts.KEPT:
            pass
    row.status, row.owner = target, owner
    row.epoch += event in _NEW_EPOCH
    row.stamp += 1
    row.finished_at = now if target in TERMINAL else None
    if source is JobStatus.RUNNING:
        row.cancel_requested_at = None
    tables.index.add(row)
    tables.counters.count_transition(row, source, event, now)
    if target is JobStatus.PENDING:
        tables.notify_queue(row.queue)
    elif target in TERMINAL:
        dedupe_keys.release_on_end(tables, row, now)
        if target is JobStatus.DEAD and row.job.on_dead is not None:
            _insert_successor(tables, row, now)
    if hold_in is not None:
        transition(tables, row, Event.HOLD, JobStatus.HELD, now, bucket=hold_in)
    elif target not in _HAS_ROOM and event is not Event.HOLD:
        _admit_waiting(tables, row, now)


def admit(tables: Tables, bucket: str, now: Instant, *, max_jobs: int = MAX_ADMITTED) -> int:
    """Let jobs leave a limit bucket as far as there is room; how many left."""
    limit_buckets, limits = tables.index.limit_buckets, tables.limits
    ready = limit_buckets.ready(bucket, limits, max_jobs)
    for row in ready:
        next_bucket = limit_buckets.next_bucket(row, bucket, limits)
        if next_bucket is None:
            transition(tables, row, Event.UNHOLD, JobStatus.PENDING, now)
        else:
            tables.index.remove_entries(row)
            row.limit_bucket = next_bucket
            tables.index.add(row)
    return len(ready)


def _admit_waiting(tables: Tables, row: Row, now: Instant) -> None:
    if tables.has_cap(row.queue, row.job.kind):
        tables.notify_queue(row.queue)
    for bucket in row.candidate_buckets:
        admit(tables, bucket, now)


def _bucket_at_insert(tables: Tables, row: Row) -> str | None:
    if row.job.hold:
        return next(iter(reversed(row.candidate_buckets)), "")
    return tables.index.limit_buckets.bucket_for(row, tables.limits)


def request_stop(tables: Tables, row: Row, event: Event, now: Instant, reason: str) -> None:
    """Record a cancel request on a running job. The first reason is kept."""
    _check(row.status, event, JobStatus.RUNNING, Attempts.KEPT)
    if row.cancel_requested_at is None:
        row.cancel_requested_at, row.cancel_reason = now, reason
    tables.raise_control_version()


def cancel(tables: Tables, row: Row, event: Event, now: Instant, reason: str) -> None:
    """Cancel a waiting job: an operator asked for it, or its expiry has passed."""
    transition(tables, row, event, JobStatus.CANCELLED, now)
    row.last_error = reason


def remove(tables: Tables, row: Row, now: Instant) -> None:
    """Delete a job that is not running, with its logs and its dedupe key."""
    _check(row.status, Event.DELETE, None, Attempts.KEPT)
    tables.index.remove_entries(row)
    tables.counters.count_delete(row)
    dedupe_keys.release(tables, row)
    tables.logs.pop(row.key, None)
    del tables.jobs[row.key]
    del tables.keys[bisect_left(tables.keys, row.key)]
    for bucket in row.candidate_buckets:
        admit(tables, bucket, now)


def record_error(row: Row, message: str, now: Instant) -> None:
    """Set the last error and append it to the bounded error history."""
    row.last_error = message
    row.errors = (*row.errors, AttemptError(now, row.attempts, message))[-ERRORS_KEPT:]


def _check(
    source: JobStatus | None, event: Event, target: JobStatus | None, attempts: Attempts
) -> None:
    if (source, event, target, attempts) not in _LEGAL:
        raise Invalid(
            f"a job that is {source or 'new'} cannot become {target or 'gone'} by {event}"
            f" with its attempt {attempts}"
        )


def _insert_successor(tables: Tables, row: Row, now: Instant) -> None:
    job = row.job
    assert job.on_dead is not None
    letter = dead_letter.payload(
        job_id=row.id,
        kind=job.kind,
        queue=job.queue,
        attempts=row.attempts,
        error=row.last_error,
        payload=job.payload,
        enqueued_at=row.enqueued_at,
        died_at=now,
    )
    successor = dead_letter.successor(job.on_dead, letter, tags=job.tags, trace=job.trace)
    insert(tables, successor, now)
