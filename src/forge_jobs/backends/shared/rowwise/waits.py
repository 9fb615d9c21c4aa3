"""Waits for events: a running handler's question, suspending a job, and resuming it.

A wait is stored only while its job is suspended. Whoever deletes it decides it, in the same
transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from forge_jobs.core.events import TakenEvent, Wait, name_and_key
from forge_jobs.core.instant import NEVER, Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind, StepRecord
from forge_jobs.store.jobs import StepAnswer, Verdict, WaitCheck

from . import transitions
from .ports import JobTransaction, R
from .step_ports import JobStep, StoredEvent, StoredWait

_STALE: Final = StepAnswer(Verdict.STALE)
_NO_EVENT: Final = StepAnswer(Verdict.APPLIED)


def check(
    tx: JobTransaction[R], claims: Mapping[tuple[int, int], R | None], checks: Sequence[WaitCheck]
) -> list[StepAnswer]:
    """Answer running handlers that ask for an event; stores the one that is there."""
    answers: list[StepAnswer] = []
    for one in checks:
        row = claims.get((one.claim.key, one.claim.epoch))
        if row is None:
            answers.append(_STALE)
            continue
        step = _decided(tx, row, one.wait)
        answers.append(_NO_EVENT if step is None else StepAnswer(Verdict.ALREADY, step))
    return answers


def suspend(tx: JobTransaction[R], row: R, wait: Wait) -> JobStatus:
    """The state that a run goes to which ends with this wait: pending if the event is there."""
    if _decided(tx, row, wait) is not None:
        return JobStatus.PENDING
    tx.steps.add_wait(StoredWait(row.key, row.epoch, wait))
    return JobStatus.SUSPENDED


def resume(tx: JobTransaction[R], row: R) -> bool:
    """Resume a suspended job if an event of its wait is there."""
    stored = _wait_of(tx, row)
    event = None if stored is None else _first_event(tx, stored.wait, None)
    if stored is None or event is None:
        return False
    _add(tx, row, _event_step(tx, row, stored.wait, event))
    row.run_at = tx.now
    transitions.transition(tx, row, Event.RESUME, JobStatus.PENDING)
    return True


def wake(tx: JobTransaction[R], row: R) -> None:
    """Resume a suspended job whose time has come. A deadline that has passed decides the wait."""
    stored = _wait_of(tx, row)
    deadline = None if stored is None else stored.wait.deadline
    if stored is not None and deadline is not None and deadline <= tx.now:
        event = _first_event(tx, stored.wait, deadline)
        if event is None:
            step = StepRecord(
                stored.wait.step, StepKind.TIMEOUT, row.epoch, stored.wait.began_at, tx.now
            )
        else:
            step = _event_step(tx, row, stored.wait, event)
        _add(tx, row, step)
    transitions.transition(tx, row, Event.RESUME, JobStatus.PENDING)


def due_at(run_at: Instant | None) -> Instant:
    """When a suspended job is due."""
    return NEVER if run_at is None else run_at


def _wait_of(tx: JobTransaction[R], row: R) -> StoredWait | None:
    """The wait of a job that is suspended under the epoch of the wait."""
    if row.status is not JobStatus.SUSPENDED:
        return None
    stored = tx.steps.wait_of(row.key)
    return stored if stored is not None and stored.epoch == row.epoch else None


def _decided(tx: JobTransaction[R], row: R, wait: Wait) -> StepRecord | None:
    """The step of a running job's wait, which is stored now if an event is there."""
    known = tx.steps.find([(row.key, wait.step)])
    if known:
        return known[row.key, wait.step]
    event = _first_event(tx, wait, None)
    if event is None:
        return None
    step = _event_step(tx, row, wait, event)
    _add(tx, row, step)
    return step


def _first_event(
    tx: JobTransaction[R], wait: Wait, sent_until: Instant | None
) -> StoredEvent | None:
    found = [tx.steps.first_event(topic, wait.began_at, sent_until) for topic in wait.topics]
    events = [event for event in found if event is not None]
    return min(events, key=lambda event: event.seq, default=None)


def _event_step(tx: JobTransaction[R], row: R, wait: Wait, event: StoredEvent) -> StepRecord:
    name, key = name_and_key(event.topic)
    value = msgspec.json.encode(
        TakenEvent(name, key, event.sent_at, event.seq, msgspec.Raw(event.payload))
    )
    return StepRecord(
        wait.step, StepKind.EVENT, row.epoch, wait.began_at, tx.now, value, size=len(value)
    )


def _add(tx: JobTransaction[R], row: R, step: StepRecord) -> None:
    if not tx.steps.find([(row.key, step.name)]):
        tx.steps.add([JobStep(row.key, step)])
