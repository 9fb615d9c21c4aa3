"""Waits for events: a running handler's question, suspending a job, and resuming it.

A wait is stored only while its job is suspended. Whoever deletes it decides it, in the same
transaction.
"""

from collections.abc import Sequence, Set
from typing import Final

import msgspec

from forge_jobs.core.events import TakenEvent, Wait, name_and_key
from forge_jobs.core.instant import NEVER, Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind, StepRecord
from forge_jobs.store.jobs import StepAnswer, Verdict, WaitCheck

from . import transitions
from .ports import JobRow, JobTransaction, R
from .step_ports import JobStep, StoredEvent, StoredWait

_STALE: Final = StepAnswer(Verdict.STALE)
_NO_EVENT: Final = StepAnswer(Verdict.APPLIED)


def check(
    tx: JobTransaction[R], claims: Set[tuple[int, int]], checks: Sequence[WaitCheck]
) -> list[StepAnswer]:
    """Answer running handlers that ask for an event; stores the one that is there."""
    answers: list[StepAnswer] = []
    for claim, wait in ((one.claim, one.wait) for one in checks):
        if (claim.key, claim.epoch) not in claims:
            answers.append(_STALE)
            continue
        step = _decided(tx, claim.key, claim.epoch, wait)
        answers.append(_NO_EVENT if step is None else StepAnswer(Verdict.ALREADY, step))
    return answers


def suspend(tx: JobTransaction[R], row: R, wait: Wait) -> JobStatus:
    """The state that a run goes to which ends with this wait: pending if the event is there."""
    if _decided(tx, row.key, row.epoch, wait) is not None:
        return JobStatus.PENDING
    tx.steps.add_wait(StoredWait(row.key, row.epoch, wait))
    return JobStatus.SUSPENDED


def resume(tx: JobTransaction[R], jobs: Sequence[int]) -> int:
    """Resume those of these jobs for whose waits an event is there; how many."""
    stored = tx.steps.waits_of(jobs)
    resumed: list[R] = []
    steps: list[JobStep] = []
    for row in tx.load(jobs).values():
        wait = stored.get(row.key)
        if wait is None or not _is_suspended_by(row, wait):
            tx.steps.delete_wait(row.key)
            continue
        event = _first_event(tx, wait.wait, None)
        if event is not None:
            steps.append(_event_step(tx, wait, event))
            row.run_at = tx.now
            transitions.transition(tx, row, Event.RESUME, JobStatus.PENDING)
            resumed.append(row)
    _add_new(tx, steps)
    tx.store(resumed)
    return len(resumed)


def wake(tx: JobTransaction[R], rows: Sequence[R]) -> None:
    """Resume suspended jobs whose time has come. A deadline that has passed decides the wait."""
    stored = tx.steps.waits_of([row.key for row in rows])
    steps: list[JobStep] = []
    for row in rows:
        wait = stored.get(row.key)
        deadline = None if wait is None else wait.wait.deadline
        if wait is not None and deadline is not None and deadline <= tx.now:
            event = _first_event(tx, wait.wait, deadline)
            steps.append(_timeout(tx, wait) if event is None else _event_step(tx, wait, event))
        transitions.transition(tx, row, Event.RESUME, JobStatus.PENDING)
    _add_new(tx, steps)


def due_at(run_at: Instant | None) -> Instant:
    """When a suspended job is due."""
    return NEVER if run_at is None else run_at


def _is_suspended_by(row: JobRow, wait: StoredWait) -> bool:
    return row.status is JobStatus.SUSPENDED and row.epoch == wait.epoch


def _decided(tx: JobTransaction[R], job: int, epoch: int, wait: Wait) -> StepRecord | None:
    """The step of a running job's wait, which is stored now if an event is there."""
    known = tx.steps.find([(job, wait.step)])
    if known:
        return known[job, wait.step]
    event = _first_event(tx, wait, None)
    if event is None:
        return None
    added = _event_step(tx, StoredWait(job, epoch, wait), event)
    tx.steps.add([added])
    return added.step


def _first_event(
    tx: JobTransaction[R], wait: Wait, sent_until: Instant | None
) -> StoredEvent | None:
    found = [tx.steps.first_event(topic, wait.began_at, sent_until) for topic in wait.topics]
    events = [event for event in found if event is not None]
    return min(events, key=lambda event: event.seq, default=None)


def _event_step(tx: JobTransaction[R], stored: StoredWait, event: StoredEvent) -> JobStep:
    name, key = name_and_key(event.topic)
    value = msgspec.json.encode(
        TakenEvent(name, key, event.sent_at, event.seq, msgspec.Raw(event.payload))
    )
    wait = stored.wait
    step = StepRecord(
        wait.step, StepKind.EVENT, stored.epoch, wait.began_at, tx.now, value, size=len(value)
    )
    return JobStep(stored.job, step)


def _timeout(tx: JobTransaction[R], stored: StoredWait) -> JobStep:
    wait = stored.wait
    step = StepRecord(wait.step, StepKind.TIMEOUT, stored.epoch, wait.began_at, tx.now)
    return JobStep(stored.job, step)


def _add_new(tx: JobTransaction[R], steps: Sequence[JobStep]) -> None:
    """Store those whose names are not stored yet: the first write of a name stays."""
    if steps:
        known = tx.steps.find([(one.job, one.step.name) for one in steps])
        new = [one for one in steps if (one.job, one.step.name) not in known]
        if new:
            tx.steps.add(new)
