"""The only place where a row changes its state, apart from the two short paths of an exchange.

Rows are loaded together, moved one by one by the table of ``core.status``, and stored together; the
short paths (``claim`` and ``finish``) do the same for plain jobs in one statement each.
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
from .rows import Row, State

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "transitions.sql")

EXPIRED: Final = "expired before it could start"
DELETED: Final = "deleted while it was running"

_LEGAL: Final = frozenset(
    (rule.source, rule.event, rule.target, rule.attempts) for rule in TRANSITIONS
)
_GOING: Final = (JobStatus.PENDING, JobStatus.RUNNING)
_HAS_ROOM: Final = (*_GOING, JobStatus.HELD)
_NEW_EPOCH: Final = (Event.CLAIM, Event.RELEASE, Event.REAP)
_rows_of = msgspec.json.Decoder(list[Row]).decode
_keys_of = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.encode


def read_keys(text: str) -> list[int]:
    """Keys from a JSON list."""
    return _keys_of(text)


def as_json(values: object) -> str:
    """A list as the JSON text that statements take."""
    return _encode(values).decode()


def load(tx: Tx, keys_wanted: Iterable[int]) -> dict[int, Row]:
    """The rows with these keys, by key; missing ones are left out."""
    return load_text(tx, as_json(list(keys_wanted)))


def load_text(tx: Tx, keys_wanted: str) -> dict[int, Row]:
    """The same for keys that are JSON already."""
    tx.roll_up()
    (found,) = tx.row(SQL["load_rows"], (keys_wanted,))
    return {row.key: row for row in _rows_of(found)}


def store(tx: Tx, rows: Sequence[Row]) -> None:
    """Write rows back after their moves."""
    if not rows:
        return
    bound: list[Row] = []
    for row in rows:
        row.settle()
        if row.is_bound:
            row.settle_bounds()
            bound.append(row)
    tx.execute(SQL["store_rows"], (as_json(rows),))
    if bound:
        tx.execute(SQL["store_bounds"], (as_json(bound),))


def check(source: JobStatus | None, event: Event, target: JobStatus | None, by: Attempts) -> None:
    """Invalid for a move that the table does not know."""
    if (source, event, target, by) not in _LEGAL:
        raise Invalid(
            f"a job that is {source or 'new'} cannot become {target or 'gone'} by {event}"
            f" with its attempt {by}"
        )


def transition(
    tx: Tx, row: Row, event: Event, target: JobStatus, attempts: Attempts = Attempts.KEPT
) -> None:
    """One legal move; the caller has set times and errors before, and stores the row after."""
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
        _forget_request(tx, row)
    tx.books.moved(row.queue, row.kind, source, target)
    if target is JobStatus.PENDING:
        tx.woken.add(row.queue)
    elif target in TERMINAL:
        dedupe_keys.ended(tx, row)
        if target is JobStatus.DEAD:
            _count(tx, row)
    if row.is_bound:
        _bound(tx, row, source, event)


def hold(tx: Tx, row: Row, lot: str) -> None:
    """A pending job has to wait in a lot."""
    transition(tx, row, Event.HOLD, JobStatus.HELD)
    row.lot = lot


def _bound(tx: Tx, row: Row, source: JobStatus, event: Event) -> None:
    """A job that comes due waits in its lot until that is looked at, before the transaction ends;
    so do the lots whose job has ended or waits for a later time."""
    if event is Event.HOLD or (row.status in _GOING and source in _HAS_ROOM):
        return
    lots = [lot for lot in (row.lane_bucket(), row.limit_key) if lot is not None]
    tx.unsettled.update(dict.fromkeys(lots))
    if row.status is JobStatus.PENDING and lots:
        hold(tx, row, lots[0])


def cancel(tx: Tx, row: Row, event: Event, reason: str) -> None:
    """A waiting job never starts: a person said so, or its expiry has passed."""
    transition(tx, row, event, JobStatus.CANCELLED)
    row.last_error = reason


def request_stop(tx: Tx, row: Row, event: Event, reason: str) -> None:
    """Ask the owner of a running job to stop; the first reason given stays."""
    check(row.status, event, JobStatus.RUNNING, Attempts.KEPT)
    state = row.state()
    if state.cancel_at is None:
        state.cancel_at, state.cancel_reason = tx.now, reason
        row.keep(state)
        tx.execute(SQL["add_cancel"], (row.owner, row.key))
    tx.operate()


def blame(row: Row, state: State, message: str, now: Instant) -> None:
    """Add to the bounded history of errors."""
    row.last_error = message
    error = AttemptError(now, row.attempts, message)
    state.errors = (*state.errors, error)[-ERRORS_KEPT:]


def remove(tx: Tx, rows: Sequence[Row]) -> None:
    """Delete jobs that are not running, with their logs, payloads and keys."""
    if not rows:
        return
    for row in rows:
        check(row.status, Event.DELETE, None, Attempts.KEPT)
        tx.books.removed(row.queue, row.kind, row.status)
        dedupe_keys.release(tx, row)
        for lot in (row.lane_bucket(), row.limit_key):
            if lot is not None:
                tx.unsettled[lot] = None
    gone = as_json([row.key for row in rows])
    for name in ("remove_jobs", "remove_bodies", "remove_lines"):
        tx.execute(SQL[name], (gone,))


def promote(tx: Tx, queue: str, limit: int) -> int:
    """Bring due jobs of a queue to pending, expired ones to their end; how many were moved."""
    tx.roll_up()
    due, late, bound = tx.row(SQL["due"], (queue, tx.now, limit))
    keys_due = read_keys(due)
    if not keys_due:
        return 0
    gone = set[int]()
    if late != "[]":
        expire(tx, late)
        gone.update(read_keys(late))
    if bound != "[]":
        _promote_bound(tx, [key for key in read_keys(bound) if key not in gone])
        gone.update(read_keys(bound))
    if gone:
        due = as_json([key for key in keys_due if key not in gone])
    (groups,) = tx.row(SQL["by_state"], (due,))
    for place, kind, status, jobs in _groups_of(groups):
        tx.books.moved(place, kind, status, JobStatus.PENDING, jobs)
        tx.woken.add(place)
    tx.execute(SQL["make_pending"], (due,))
    return len(keys_due)


def _promote_bound(tx: Tx, keys_due: Sequence[int]) -> None:
    """Jobs with a lane or a key come due: they wait in their lot until it lets them on."""
    rows = list(load(tx, keys_due).values())
    for row in rows:
        transition(tx, row, Event.PROMOTE, JobStatus.PENDING)
    store(tx, rows)


def expire(tx: Tx, keys_late: str) -> int:
    """Cancel waiting jobs whose expiry has passed."""
    rows = load_text(tx, keys_late)
    for row in rows.values():
        cancel(tx, row, Event.EXPIRE, EXPIRED)
    store(tx, list(rows.values()))
    return len(rows)


def _forget_request(tx: Tx, row: Row) -> None:
    if row.state_text is None:
        return
    state = row.state()
    if state.cancel_at is not None:
        state.cancel_at = state.cancel_reason = None
        row.keep(state)
        tx.execute(SQL["drop_cancel"], (row.owner, row.key))


def _count(tx: Tx, row: Row) -> None:
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
    told = dead_letter.successor(options.on_dead, letter, tags=options.tags, trace=options.trace)
    enqueue.insert(tx, [told])


_groups_of = msgspec.json.Decoder(list[tuple[str, str, JobStatus, int]]).decode
