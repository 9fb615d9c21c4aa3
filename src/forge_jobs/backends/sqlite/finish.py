"""Ending claims: plain successes in one statement per epoch, everything else row by row."""

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
from .io.operation import Again
from .io.transaction import Tx
from .rows import Row, State
from .transitions import as_json

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "exchange.sql")

LINES_KEPT: Final = 1_000
_DONE: Final = SQL["done"]
_DONE_RANGE: Final = SQL["done_range"]
_DONE_WITH_RESULT: Final = SQL["done_with_result"]
_OUTCOMES: Final = frozenset(
    (event, target)
    for event in (
        Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING
    )
    for target in targets(JobStatus.RUNNING, event)
)  # fmt: skip
_HANDED_BACK: Final = (Event.THROTTLE, Event.SNOOZE, Event.MISSING)

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE_EVENT, _DONE_STATUS = Event.DONE, JobStatus.DONE


def check(finishes: Sequence[Finish]) -> None:
    """Invalid for an end that the table of moves does not know."""
    for end in finishes:
        if end.event is _DONE_EVENT and end.status is _DONE_STATUS:
            continue
        if (end.event, end.status) not in _OUTCOMES:
            raise Invalid(f"a claim cannot end as {end.status} by {end.event}")


def done(tx: Tx, owner: int, ends: Sequence[Finish], *, timed: bool) -> None:
    """Plain jobs that ended well; Again if any of these claims turns out to be something else.

    The caller knows that none of them carries jobs, holds a key or was asked to stop.
    """
    now, books = tx.now, tx.books
    plain: dict[int, list[int]] = {}
    telling: dict[int, list[tuple[int, str]]] = {}
    groups: dict[tuple[str, str], list[Finish]] = {}
    for end in ends:
        result = end.result
        if result is None:
            plain.setdefault(end.epoch, []).append(end.key)
        else:
            telling.setdefault(end.epoch, []).append((end.key, result.decode()))
        groups.setdefault((end.queue, end.kind), []).append(end)
    for epoch, ended in plain.items():
        low, high = min(ended), max(ended)
        if high - low + 1 == len(ended) == len(set(ended)):
            told = tx.execute(_DONE_RANGE, (now, low, high, epoch, owner)).rowcount
        else:
            told = tx.execute(_DONE, (now, as_json(ended), epoch, owner)).rowcount
        if told != len(ended):
            raise Again
    for epoch, told in telling.items():
        values = (now, as_json(told), epoch, owner)
        if tx.execute(_DONE_WITH_RESULT, values).rowcount != len(told):
            raise Again
    for (queue, kind), group in groups.items():
        books.moved(queue, kind, JobStatus.RUNNING, JobStatus.DONE, len(group))
        if timed:
            books.ended(queue, kind, group)


def finish(tx: Tx, owner: int, end: Finish, row: Row | None, *, timed: bool = True) -> Verdict:
    """Write the end of one claim into its row, if it still is this owner's to write."""
    if row is None or row.epoch != end.epoch or row.owner != owner:
        return Verdict.STALE
    if row.status is not JobStatus.RUNNING:
        return Verdict.ALREADY
    if row.started_at is None:
        start(tx, row, after(tx.now, -end.ran_s))
    state = row.state()
    target = final_status(end.status, cancel_requested=state.cancel_at is not None)
    delay_s = _throttle(tx, row, state, end) if end.event is Event.THROTTLE else end.delay_s
    if end.event is Event.MISSING and state.missing_since is None:
        state.missing_since = tx.now
    state.crashes += end.event is Event.CRASH
    _note_error(tx, row, state, end)
    given_back = end.event in _HANDED_BACK and target is JobStatus.SCHEDULED
    if target in (JobStatus.SCHEDULED, JobStatus.FAILED):
        row.run_at = after(tx.now, delay_s or 0.0)
    elif target is JobStatus.CANCELLED:
        row.last_error = state.cancel_reason
    elif target is JobStatus.DONE:
        row.result = None if end.result is None else end.result.decode()
        row.result_changed = True
    row.keep(state)
    transitions.transition(
        tx, row, end.event, target, Attempts.GIVEN_BACK if given_back else Attempts.KEPT
    )
    if end.event is Event.THROTTLE and given_back:
        tx.books.throttled(row.queue, row.kind)
    if timed:
        tx.books.ended(row.queue, row.kind, [structs.replace(end, enqueued_at=row.enqueued_at)])
    if end.jobs:
        enqueue.insert(tx, end.jobs)
    return Verdict.APPLIED


def start(tx: Tx, row: Row, at: int) -> None:
    """From here on an owner's death counts against the job."""
    if row.started_at is None:
        row.started_at = at
        dedupe_keys.started(tx, row)


def release(tx: Tx, row: Row) -> None:
    """Hand a claim back as if it had never been made."""
    state = row.state()
    if state.cancel_at is not None:
        row.last_error = state.cancel_reason
        transitions.transition(tx, row, Event.RELEASE, JobStatus.CANCELLED)
    else:
        transitions.transition(tx, row, Event.RELEASE, JobStatus.PENDING, Attempts.GIVEN_BACK)


def reap(tx: Tx, row: Row, crash_note: str) -> JobStatus:
    """Take a job from an owner that is not alive; where it went."""
    state, started = row.state(), row.started_at is not None
    target, left = reaped(
        started=started,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        cancel_requested=state.cancel_at is not None,
    )
    if started:
        state.crashes += 1
        transitions.blame(row, state, crash_note, tx.now)
    if target is JobStatus.CANCELLED:
        row.last_error = state.cancel_reason
    row.keep(state)
    kept = Attempts.KEPT if left == row.attempts else Attempts.GIVEN_BACK
    transitions.transition(tx, row, Event.REAP, target, kept)
    if started and target is JobStatus.PENDING:
        tx.books.lost(row.queue, row.kind)
    return target


def mine(rows: dict[int, Row], owner: int, claim: Claim) -> Row | None:
    """The row of a claim, if the claim is still good."""
    row = rows.get(claim.key)
    if row is None or row.owner != owner or row.epoch != claim.epoch:
        return None
    return row if row.status is JobStatus.RUNNING else None


def note(tx: Tx, row: Row, said: Note) -> None:
    """Keep what a running handler said."""
    if said.progress is not None or said.progress_note is not None:
        state = row.state()
        if said.progress is not None:
            state.progress = said.progress
        if said.progress_note is not None:
            state.progress_note = said.progress_note
        row.keep(state)
    for line in said.lines[-LINES_KEPT:]:
        tx.execute(transitions.SQL["add_line"], (row.key, line.at, line.level, line.message))
    if said.lines:
        tx.execute(transitions.SQL["trim_lines"], (row.key, LINES_KEPT))


def read_gate(tx: Tx, queue: str) -> Gate:
    """The throttle state of a queue."""
    found = tx.row(transitions.SQL["gate"], (queue,))
    return OPEN if found is None else Gate(*found)


def write_gate(tx: Tx, queue: str, gate: Gate) -> None:
    """The table holds only gates that say something."""
    if gate == OPEN:
        tx.execute(transitions.SQL["drop_gate"], (queue,))
    else:
        tx.execute(transitions.SQL["set_gate"], (queue, gate.until, gate.count))


def gate_of(end: Finish) -> str:
    """The gate that a throttle closes: that of its scope, else that of its queue."""
    return end.queue if end.scope is None else scope_gate(end.scope)


def ease(tx: Tx, queue: str) -> None:
    """A success in a queue that was throttled lately."""
    gate = read_gate(tx, queue)
    after_it = succeeded(gate, tx.now)
    if after_it != gate:
        write_gate(tx, queue, after_it)


def _throttle(tx: Tx, row: Row, state: State, end: Finish) -> float | None:
    state.throttles += 1
    if state.throttled_since is None:
        state.throttled_since = tx.now
    if end.status is JobStatus.DEAD:
        return end.delay_s
    name = gate_of(end)
    gate, curve = read_gate(tx, name), None if end.scope is None else SCOPE_CURVE
    found = tx.row(transitions.SQL["curve"], (row.queue,))
    if found is not None and found[0]:
        curve = Backoff(base_s=found[1], max_s=found[2])
    delay_s = throttle_delay_s(gate, end.delay_s, curve)
    write_gate(tx, name, throttled(gate, tx.now, delay_s))
    return delay_s


def _note_error(tx: Tx, row: Row, state: State, end: Finish) -> None:
    if end.error is None:
        return
    if end.event is Event.MISSING and end.status is JobStatus.SCHEDULED:
        # It comes every few seconds during a deploy and would push the real errors out.
        row.last_error = end.error
    else:
        transitions.blame(row, state, end.error, tx.now)
