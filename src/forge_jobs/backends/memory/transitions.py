"""The only place where a job changes its state: every move is looked up in the table first.

Callers say what happened and where it leads; times, errors and counters of their own they write
themselves, before the move, since a row is put in line by its ``run_at``.
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
# From these a job goes on to pending or running without asking for room: it has it.
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
    """Whether a worker may end its claim this way."""
    return (event, target) in _OUTCOMES


def insert(tables: Tables, job: NewJob, now: Instant) -> Enqueued:
    """Store a job, unless its key is taken: then that job is the answer."""
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
        row.lot = _lot_at_first(tables, row)
        if row.lot is not None:
            row.status = status = JobStatus.HELD
    _check(None, Event.ENQUEUE, status, Attempts.KEPT)
    tables.jobs[key] = row
    tables.keys.append(key)
    dedupe_keys.take(tables, row)
    tables.lines.place(row)
    tables.books.entered(row, now)
    tables.wake(job.queue)
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
    lot: str | None = None,
    wait_in: str | None = None,
) -> None:
    """One legal move; anything else is refused and changes nothing. ``wait_in``: the lot in which a
    job that comes due waits in any case, until somebody looks at that.

    Keeps the invariants: owner if and only if running, ``finished_at`` if and only if ended, an
    epoch that never falls, keys, counters and lines; a death stores the ``on_dead`` job. A job that
    comes due while its lane or key is full is held at once, and whoever waited for a job that goes
    on or ends follows it.
    """
    source = row.status
    _check(source, event, target, attempts)
    waits_in = wait_in
    if waits_in is None and target is JobStatus.PENDING and source not in _HAS_ROOM:
        waits_in = tables.lines.lots.lot_for(row, tables.limits)
    tables.lines.withdraw(row)
    row.lot = lot
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
    tables.lines.place(row)
    tables.books.moved(row, source, event, now)
    if target is JobStatus.PENDING:
        tables.wake(row.queue)
    elif target in TERMINAL:
        dedupe_keys.ended(tables, row, now)
        if target is JobStatus.DEAD and row.job.on_dead is not None:
            _count(tables, row, now)
    if waits_in is not None:
        transition(tables, row, Event.HOLD, JobStatus.HELD, now, lot=waits_in)
    elif target not in _HAS_ROOM and event is not Event.HOLD:
        _make_room(tables, row, now)


def admit(tables: Tables, lot: str, now: Instant, *, most: int = MAX_ADMITTED) -> int:
    """Let jobs of a lot go on as far as there is room; how many left it."""
    lots, limits = tables.lines.lots, tables.limits
    ready = lots.ready(lot, limits, most)
    for row in ready:
        further = lots.next_lot(row, lot, limits)
        if further is None:
            transition(tables, row, Event.UNHOLD, JobStatus.PENDING, now)
        else:
            tables.lines.withdraw(row)
            row.lot = further
            tables.lines.place(row)
    return len(ready)


def _make_room(tables: Tables, row: Row, now: Instant) -> None:
    if tables.capped(row.queue, row.job.kind):
        tables.wake(row.queue)
    for lot in row.bound_by:
        admit(tables, lot, now)


def _lot_at_first(tables: Tables, row: Row) -> str | None:
    if row.job.hold:
        return next(iter(reversed(row.bound_by)), "")
    return tables.lines.lots.lot_for(row, tables.limits)


def request_stop(tables: Tables, row: Row, event: Event, now: Instant, reason: str) -> None:
    """Ask the owner of a running job to stop; the first reason given stays."""
    _check(row.status, event, JobStatus.RUNNING, Attempts.KEPT)
    if row.cancel_requested_at is None:
        row.cancel_requested_at, row.cancel_reason = now, reason
    tables.operated()


def cancel(tables: Tables, row: Row, event: Event, now: Instant, reason: str) -> None:
    """A waiting job never starts: a person said so, or its expiry has passed."""
    transition(tables, row, event, JobStatus.CANCELLED, now)
    row.last_error = reason


def remove(tables: Tables, row: Row, now: Instant) -> None:
    """Delete a job that is not running, with its logs and its key."""
    _check(row.status, Event.DELETE, None, Attempts.KEPT)
    tables.lines.withdraw(row)
    tables.books.removed(row)
    dedupe_keys.release(tables, row)
    tables.logs.pop(row.key, None)
    del tables.jobs[row.key]
    del tables.keys[bisect_left(tables.keys, row.key)]
    for lot in row.bound_by:
        admit(tables, lot, now)


def blame(row: Row, message: str, now: Instant) -> None:
    """Add to the bounded history of errors."""
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


def _count(tables: Tables, row: Row, now: Instant) -> None:
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
    told = dead_letter.successor(job.on_dead, letter, tags=job.tags, trace=job.trace)
    insert(tables, told, now)
