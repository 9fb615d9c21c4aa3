"""Finishes claims: plain successes in one statement per epoch, everything else row by row."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.decide import Finish, final_status, reaped
from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import after
from forge_jobs.core.job import Claim
from forge_jobs.core.limits import scope_gate
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Attempts, Event, JobStatus, targets
from forge_jobs.core.throttle import (
    OPEN,
    SCOPE_CURVE,
    Gate,
    succeeded,
    throttle_delay_s,
    throttled,
)
from forge_jobs.store.jobs import Note, Verdict

from . import dedupe_keys, enqueue, transitions
from .io.operation import RunAlone
from .io.transaction import Tx
from .rows import Details, Row
from .transitions import as_json

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "exchange.sql")

MAX_LOG_LINES: Final = 1_000
_DONE: Final = SQL["done"]
_DONE_RANGE: Final = SQL["done_range"]
_DONE_WITH_RESULT: Final = SQL["done_with_result"]
_LEGAL: Final = frozenset(
    (event, target)
    for event in (
        Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING
    )
    for target in targets(JobStatus.RUNNING, event)
)  # fmt: skip
_RELEASED: Final = (Event.THROTTLE, Event.SNOOZE, Event.MISSING)

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE_EVENT, _DONE_STATUS = Event.DONE, JobStatus.DONE


def check(finishes: Sequence[Finish]) -> None:
    """Raise Invalid for a finish that the table of transitions does not allow."""
    for finish in finishes:
        if finish.event is _DONE_EVENT and finish.status is _DONE_STATUS:
            continue
        if (finish.event, finish.status) not in _LEGAL:
            raise Invalid(f"a claim cannot end as {finish.status} by {finish.event}")


def finish_done(tx: Tx, owner: int, finishes: Sequence[Finish], *, timed: bool) -> None:
    """The short path: finish plain jobs that succeeded. Raises RunAlone if one of the claims is not
    current, or not plain.

    The caller knows that none of them has successors, a dedupe key or a cancel request.
    """
    now, counters = tx.now, tx.counters
    plain: dict[int, list[int]] = {}
    with_result: dict[int, list[tuple[int, str]]] = {}
    groups: dict[tuple[str, str], list[Finish]] = {}
    for finish in finishes:
        result = finish.result
        if result is None:
            plain.setdefault(finish.epoch, []).append(finish.key)
        else:
            with_result.setdefault(finish.epoch, []).append((finish.key, result.decode()))
        groups.setdefault((finish.queue, finish.kind), []).append(finish)
    for epoch, keys in plain.items():
        low, high = min(keys), max(keys)
        if high - low + 1 == len(keys) == len(set(keys)):
            updated = tx.execute(_DONE_RANGE, (now, low, high, epoch, owner)).rowcount
        else:
            updated = tx.execute(_DONE, (now, as_json(keys), epoch, owner)).rowcount
        if updated != len(keys):
            raise RunAlone
    for epoch, results in with_result.items():
        values = (now, as_json(results), epoch, owner)
        if tx.execute(_DONE_WITH_RESULT, values).rowcount != len(results):
            raise RunAlone
    for (queue, kind), group in groups.items():
        counters.transitioned(queue, kind, JobStatus.RUNNING, JobStatus.DONE, len(group))
        if timed:
            counters.finished(queue, kind, group)


def finish_row(
    tx: Tx, owner: int, finish: Finish, row: Row | None, *, timed: bool = True
) -> Verdict:
    """Finish one claim in its row, if owner and epoch are current."""
    if row is None or row.epoch != finish.epoch or row.owner != owner:
        return Verdict.STALE
    if row.status is not JobStatus.RUNNING:
        return Verdict.ALREADY
    if row.started_at is None:
        start(tx, row, after(tx.now, -finish.ran_s))
    details = row.details()
    target = final_status(finish.status, cancel_requested=details.cancel_at is not None)
    delay_s = (
        _throttle(tx, row, details, finish) if finish.event is Event.THROTTLE else finish.delay_s
    )
    if finish.event is Event.MISSING and details.missing_since is None:
        details.missing_since = tx.now
    details.crashes += finish.event is Event.CRASH
    _record_error(tx, row, details, finish)
    attempt_returned = finish.event in _RELEASED and target is JobStatus.SCHEDULED
    if target in (JobStatus.SCHEDULED, JobStatus.FAILED):
        row.run_at = after(tx.now, delay_s or 0.0)
    elif target is JobStatus.CANCELLED:
        row.last_error = details.cancel_reason
    elif target is JobStatus.DONE:
        row.result = None if finish.result is None else finish.result.decode()
        row.result_changed = True
    row.set_details(details)
    transitions.transition(
        tx, row, finish.event, target, Attempts.GIVEN_BACK if attempt_returned else Attempts.KEPT
    )
    if finish.event is Event.THROTTLE and attempt_returned:
        tx.counters.throttled(row.queue, row.kind)
    if timed:
        tx.counters.finished(
            row.queue, row.kind, [structs.replace(finish, enqueued_at=row.enqueued_at)]
        )
    if finish.jobs:
        enqueue.insert(tx, finish.jobs)
    return Verdict.APPLIED


def start(tx: Tx, row: Row, at: int) -> None:
    """Mark a job as started: from now on the death of its owner spends an attempt."""
    if row.started_at is None:
        row.started_at = at
        dedupe_keys.started(tx, row)


def release(tx: Tx, row: Row) -> None:
    """Give a claim back without spending an attempt."""
    details = row.details()
    if details.cancel_at is not None:
        row.last_error = details.cancel_reason
        transitions.transition(tx, row, Event.RELEASE, JobStatus.CANCELLED)
    else:
        transitions.transition(tx, row, Event.RELEASE, JobStatus.PENDING, Attempts.GIVEN_BACK)


def reap(tx: Tx, row: Row, crash_note: str) -> JobStatus:
    """Take a job from an owner that is not alive; returns its new state."""
    details, started = row.details(), row.started_at is not None
    target, left = reaped(
        started=started,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        cancel_requested=details.cancel_at is not None,
    )
    if started:
        details.crashes += 1
        transitions.add_error(row, details, crash_note, tx.now)
    if target is JobStatus.CANCELLED:
        row.last_error = details.cancel_reason
    row.set_details(details)
    kept = Attempts.KEPT if left == row.attempts else Attempts.GIVEN_BACK
    transitions.transition(tx, row, Event.REAP, target, kept)
    if started and target is JobStatus.PENDING:
        tx.counters.reaped(row.queue, row.kind)
    return target


def claimed_row(rows: dict[int, Row], owner: int, claim: Claim) -> Row | None:
    """The row of a claim, if owner and epoch are current and it is running."""
    row = rows.get(claim.key)
    if row is None or row.owner != owner or row.epoch != claim.epoch:
        return None
    return row if row.status is JobStatus.RUNNING else None


def write_note(tx: Tx, row: Row, note: Note) -> None:
    """Store progress and log lines of a running handler."""
    if note.progress is not None or note.progress_note is not None:
        details = row.details()
        if note.progress is not None:
            details.progress = note.progress
        if note.progress_note is not None:
            details.progress_note = note.progress_note
        row.set_details(details)
    for line in note.lines[-MAX_LOG_LINES:]:
        tx.execute(transitions.SQL["add_log_line"], (row.key, line.at, line.level, line.message))
    if note.lines:
        tx.execute(transitions.SQL["trim_log"], (row.key, MAX_LOG_LINES))


def read_gate(tx: Tx, queue: str) -> Gate:
    """The throttle gate of a queue or scope."""
    found = tx.row(transitions.SQL["gate"], (queue,))
    return OPEN if found is None else Gate(*found)


def write_gate(tx: Tx, queue: str, gate: Gate) -> None:
    """Store a gate; the table holds only gates that are not open."""
    if gate == OPEN:
        tx.execute(transitions.SQL["delete_gate"], (queue,))
    else:
        tx.execute(transitions.SQL["set_gate"], (queue, gate.until, gate.count))


def gate_of(finish: Finish) -> str:
    """The gate that a throttle closes: that of its scope, else that of its queue."""
    return finish.queue if finish.scope is None else scope_gate(finish.scope)


def ease_gate(tx: Tx, queue: str) -> None:
    """Record a success behind a gate that was throttled recently."""
    gate = read_gate(tx, queue)
    eased = succeeded(gate, tx.now)
    if eased != gate:
        write_gate(tx, queue, eased)


def _throttle(tx: Tx, row: Row, details: Details, finish: Finish) -> float | None:
    details.throttles += 1
    if details.throttled_since is None:
        details.throttled_since = tx.now
    if finish.status is JobStatus.DEAD:
        return finish.delay_s
    name = gate_of(finish)
    gate, curve = read_gate(tx, name), None if finish.scope is None else SCOPE_CURVE
    found = tx.row(transitions.SQL["backoff"], (row.queue,))
    if found is not None and found[0]:
        curve = Backoff(base_s=found[1], max_s=found[2])
    delay_s = throttle_delay_s(gate, finish.delay_s, curve)
    write_gate(tx, name, throttled(gate, tx.now, delay_s))
    return delay_s


def _record_error(tx: Tx, row: Row, details: Details, finish: Finish) -> None:
    if finish.error is None:
        return
    if finish.event is Event.MISSING and finish.status is JobStatus.SCHEDULED:
        # It repeats every few seconds during a deploy and would displace the real errors.
        row.last_error = finish.error
    else:
        transitions.add_error(row, details, finish.error, tx.now)
