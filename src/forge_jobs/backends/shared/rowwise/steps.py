"""Steps of running jobs: stored under a name, the first write stays; read again with a claim."""

from collections.abc import Sequence, Set
from typing import Final

from forge_jobs.core.errors import Conflict, LeaseLost
from forge_jobs.core.steps import (
    MAX_CLAIMED_BYTES,
    MAX_CLAIMED_STEPS,
    ClaimedSteps,
    FinishSteps,
    StepRecord,
    StepWrite,
    shown_step,
)
from forge_jobs.store.jobs import Exchange, StepAnswer, Verdict

from . import waits
from .ports import JobRow, JobTransaction, R
from .step_ports import JobStep

_STALE: Final = StepAnswer(Verdict.STALE)


def exchange(tx: JobTransaction[R], request: Exchange) -> tuple[list[StepAnswer], list[StepAnswer]]:
    """Store steps of running handlers and look for the events that they wait for; the answers to
    both."""
    keys = dict.fromkeys(step.key for step in request.steps)
    keys.update(dict.fromkeys(one.claim.key for one in request.waits))
    claims = tx.current_claims(request.owner, keys)
    return write(tx, claims, request.steps), waits.check(tx, claims, request.waits)


def write(
    tx: JobTransaction[R], claims: Set[tuple[int, int]], steps: Sequence[StepWrite]
) -> list[StepAnswer]:
    """Store steps of running jobs; ``claims`` are key and epoch of current claims."""
    if not steps:
        return []
    known = tx.steps.find([(step.key, step.name) for step in steps])
    answers: list[StepAnswer] = []
    added: list[JobStep] = []
    for step in steps:
        stored = known.get((step.key, step.name))
        if (step.key, step.epoch) not in claims:
            answers.append(_STALE)
        elif stored is not None:
            answers.append(StepAnswer(Verdict.ALREADY, stored))
        else:
            new = record_of(step)
            known[step.key, step.name] = new
            added.append(JobStep(step.key, new))
            answers.append(StepAnswer(Verdict.APPLIED, new))
    if added:
        tx.steps.add(added)
    return answers


def add_new(tx: JobTransaction[R], job: int, steps: Sequence[StepWrite]) -> None:
    """Store those steps of a finish whose names are not stored yet."""
    known = tx.steps.find([(job, step.name) for step in steps])
    new = {step.name: record_of(step) for step in reversed(steps) if (job, step.name) not in known}
    if new:
        tx.steps.add([JobStep(job, step) for step in new.values()])


def record_of(step: StepWrite) -> StepRecord:
    """What is stored of a step."""
    size = 0 if step.value is None else len(step.value)
    return StepRecord(
        step.name, step.kind, step.epoch, step.began_at, step.ended_at, step.value,
        step.fingerprint, size,
    )  # fmt: skip


def check_in(tx: JobTransaction[R], owner: int, step: StepWrite) -> None:
    """LeaseLost if the claim of a step is not current, Conflict if its name is stored already."""
    if (step.key, step.epoch) not in tx.current_claims(owner, [step.key]):
        raise LeaseLost(
            f"the step {shown_step(step.name)!r} was not stored: this run of the job has ended for "
            "the store, another run may have begun"
        )
    if tx.steps.find([(step.key, step.name)]):
        raise Conflict(f"the step {shown_step(step.name)!r} of this job is stored already")


def store_in(tx: JobTransaction[R], owner: int, step: StepWrite) -> None:
    """Store a step of a user's transaction (``Store.store_step_in``)."""
    check_in(tx, owner, step)
    tx.steps.add([JobStep(step.key, record_of(step))])


def mark(row: JobRow) -> None:
    """Mark a job as one that has steps. Its expiry is removed: it has made progress."""
    row.has_steps = True
    row.remove_expiry()


def mark_found(tx: JobTransaction[R], rows: Sequence[R]) -> None:
    """Mark those of these jobs that have steps. A run that stored steps and ended without a finish
    has marked nothing."""
    unmarked = [row for row in rows if not row.has_steps]
    if not unmarked:
        return
    having = tx.steps.having([row.key for row in unmarked])
    for row in unmarked:
        if row.key in having:
            mark(row)


def restart(tx: JobTransaction[R], row: R, finish: FinishSteps) -> None:
    """Begin a new history with other arguments."""
    tx.steps.delete(row.key)
    if finish.payload is not None:
        tx.set_payload(row, finish.payload)


def with_claim(tx: JobTransaction[R], row: R) -> ClaimedSteps | None:
    """The history that a claim brings; None for a job that is not marked."""
    if not row.has_steps:
        return None
    found = tx.steps.first(row.key, MAX_CLAIMED_STEPS + 1)
    return claimed_steps(found, row.details().failed_runs)


def claimed_steps(found: Sequence[StepRecord], failed_runs: int) -> ClaimedSteps:
    """The first of these steps within the limits of a claim, at least one."""
    count = size = 0
    for step in found[:MAX_CLAIMED_STEPS]:
        size += step.size
        if count and size > MAX_CLAIMED_BYTES:
            break
        count += 1
    return ClaimedSteps(tuple(found[:count]), count < len(found), failed_runs)
