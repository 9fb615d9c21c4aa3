"""Decides what follows from an outcome: the ``Finish`` that a worker sends to the store.

``decide`` is pure: the same job, outcome, time and random number give the same finish. The backend
that applies it adds two facts that only the store knows: a cancel request (``final_status``) and
store time (delays are relative to it). ``reaped`` decides the same for a job whose owner is dead.
"""

from dataclasses import dataclass
from typing import NamedTuple, assert_never

from msgspec import Struct

from .instant import SECOND, Instant
from .job import ClaimedJob, NewJob
from .outcome import (
    AnyOutcome,
    Crashed,
    Dead,
    Done,
    Failed,
    Missing,
    Parked,
    Restarted,
    Snooze,
    Stopped,
    Throttled,
)
from .retry import DEFAULT_BACKOFF, Backoff
from .status import Event, JobStatus
from .steps import MAX_FAILED_RUNS, FinishSteps


@dataclass(frozen=True, slots=True)
class Budgets:
    """Bounds that are not attempts.

    ``throttle_s`` and ``missing_s``: how long a job may be throttled, or find no worker that can
    run it, before it is dead. Such a job is offered again after a delay that grows with the time it
    has waited, from ``missing_first_s`` up to ``missing_delay_s``, or only up to ``handover_s``
    while a living worker is known that may take it. ``max_crashes``: how often its own child
    process may die.
    """

    throttle_s: float = 86_400.0
    missing_s: float = 86_400.0
    missing_first_s: float = 0.25
    missing_delay_s: float = 15.0
    handover_s: float = 0.5
    max_crashes: int = 3


DEFAULT_BUDGETS = Budgets()


class Finish(Struct, frozen=True, gc=False):
    """The write that ends one claim. Valid only for the claim's owner and epoch.

    ``delay_s`` counts from store time; None with THROTTLE means that the back-off of queue or scope
    decides. ``jobs`` are successors, inserted in the same transaction if the finish is applied.
    ``ran_s`` is how long the handler ran and ``waited_s`` how long the job was due before that, for
    the metrics. ``queue``, ``kind``, ``enqueued_at`` and ``tags`` repeat the row's: counting reads
    no row. ``traceback`` belongs to ``error`` and is stored apart from the job's row. ``steps`` is
    set if the job has stored steps, or stores some with this finish.

    >>> FinalizeOutcome.__name__  # what a store's exchange takes; handlers return a JobOutcome
    'Finish'
    """

    key: int
    epoch: int
    event: Event
    status: JobStatus
    queue: str
    kind: str
    delay_s: float | None = 0.0
    result: bytes | None = None
    error: str | None = None
    scope: str | None = None
    jobs: tuple[NewJob, ...] = ()
    ran_s: float = 0.0
    waited_s: float = 0.0
    enqueued_at: Instant = 0
    traceback: str | None = None
    steps: FinishSteps | None = None
    tags: tuple[str, ...] = ()


class StepProgress(NamedTuple):
    """What ``decide`` has to know of a run with steps: whether this run stored one, and how many
    failed runs the job may have in all."""

    stored: bool
    max_failed_runs: int = MAX_FAILED_RUNS


WAITS_FOR_VERSION = "; it waits for a worker of another version"
_NO_HANDLER = "no worker of this queue has a handler"

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE_EVENT = Event.DONE
_DONE = JobStatus.DONE


class _Decision(NamedTuple):
    event: Event
    status: JobStatus
    delay_s: float | None = 0.0
    error: str | None = None


def decide(
    job: ClaimedJob,
    outcome: AnyOutcome,
    *,
    now: Instant,
    roll: float = 0.5,
    backoff: Backoff = DEFAULT_BACKOFF,
    budgets: Budgets = DEFAULT_BUDGETS,
    result: bytes | None = None,
    jobs: tuple[NewJob, ...] = (),
    ran_s: float = 0.0,
    waited_s: float = 0.0,
    progress: StepProgress | None = None,
) -> Finish:
    """The finish of one outcome.

    ``result`` (encoded) and ``jobs`` are used for Done only. ``roll`` is a random number in [0, 1).
    ``progress`` is given if the job has stored steps.
    """
    steps = None if progress is None else FinishSteps()
    if isinstance(outcome, Done):
        return done(job, result=result, jobs=jobs, ran_s=ran_s, waited_s=waited_s, steps=steps)
    match outcome:
        case Failed(message=message, retry_after_s=min_delay_s):
            delay_s = max(backoff.jittered_s(job.attempts, roll), min_delay_s)
            if progress is not None and _keeps_attempt(job, progress):
                decision = _Decision(Event.FAIL, JobStatus.FAILED, delay_s, message)
                steps = FinishSteps(attempt_returned=True)
            else:
                decision = _failed(job, Event.FAIL, message, delay_s)
        case Stopped(message=message):
            # The store turns it into ``cancelled``; if the request is gone, it is a failure.
            decision = _failed(job, Event.FAIL, message, backoff.jittered_s(job.attempts, roll))
        case Crashed(message=message):
            decision = _crashed(job, message, backoff.jittered_s(job.attempts, roll), budgets)
        case Dead(message=message):
            decision = _Decision(Event.DIE, JobStatus.DEAD, error=message)
        case Throttled(retry_after_s=given_s):
            decision = _throttled(job, given_s, now, budgets)
        case Snooze(delay_s=delay_s):
            decision = _Decision(Event.SNOOZE, JobStatus.SCHEDULED, delay_s)
        case Missing():
            decision = _missing(job, outcome, now, roll, budgets)
        case Parked(wait=None, wake_at=wake_at, steps=sleeps):
            decision = _Decision(Event.SNOOZE, JobStatus.SCHEDULED)
            steps = FinishSteps(steps=sleeps, run_at=wake_at)
        case Parked(wait=wait, wake_at=wake_at, steps=sleeps):
            decision = _Decision(Event.SUSPEND, JobStatus.SUSPENDED)
            steps = FinishSteps(steps=sleeps, run_at=wake_at, wait=wait)
        case Restarted(payload=payload, steps=cursors):
            decision = _Decision(Event.RESTART, JobStatus.PENDING)
            steps = FinishSteps(steps=cursors, payload=payload)
        case _:
            assert_never(outcome)
    scope = outcome.scope if isinstance(outcome, Throttled) else None
    return Finish(
        job.key, job.epoch, decision.event, decision.status, job.queue, job.kind,
        delay_s=decision.delay_s, error=decision.error, scope=scope, ran_s=ran_s, waited_s=waited_s,
        enqueued_at=job.enqueued_at, traceback=outcome.traceback, steps=steps, tags=job.tags,
    )  # fmt: skip


def done(
    job: ClaimedJob,
    *,
    result: bytes | None,
    jobs: tuple[NewJob, ...] = (),
    ran_s: float = 0.0,
    waited_s: float = 0.0,
    steps: FinishSteps | None = None,
) -> Finish:
    """The finish of a success, which depends on neither time nor a random number."""
    return Finish(
        job.key, job.epoch, _DONE_EVENT, _DONE, job.queue, job.kind,
        0.0, result, None, None, jobs, ran_s, waited_s, job.enqueued_at, None, steps, job.tags,
    )  # fmt: skip


def _failed(job: ClaimedJob, event: Event, message: str, delay_s: float) -> _Decision:
    if job.attempts >= job.max_attempts:
        return _Decision(event, JobStatus.DEAD, error=message)
    return _Decision(event, JobStatus.FAILED, delay_s, message)


def _keeps_attempt(job: ClaimedJob, progress: StepProgress) -> bool:
    """Whether a failed run spends no attempt: it stored a step, so that the next run gets further.
    A task that must not run twice (``max_attempts=1``) never gets one back, and the number of
    failed runs is bounded."""
    failed_runs = 0 if job.steps is None else job.steps.failed_runs
    # Runs that spent their attempt count too.
    failed_in_all = failed_runs + job.attempts
    return progress.stored and job.max_attempts > 1 and failed_in_all < progress.max_failed_runs


def _crashed(job: ClaimedJob, message: str, delay_s: float, budgets: Budgets) -> _Decision:
    if job.crashes + 1 >= budgets.max_crashes:
        return _Decision(Event.CRASH, JobStatus.DEAD, error=message)
    return _failed(job, Event.CRASH, message, delay_s)


def _throttled(job: ClaimedJob, given_s: float | None, now: Instant, budgets: Budgets) -> _Decision:
    if _used_up(job.throttled_since, now, budgets.throttle_s):
        spent = f"throttled for more than {budgets.throttle_s:.0f} s without a success"
        return _Decision(Event.THROTTLE, JobStatus.DEAD, error=spent)
    return _Decision(Event.THROTTLE, JobStatus.SCHEDULED, given_s)


def _missing(
    job: ClaimedJob, outcome: Missing, now: Instant, roll: float, budgets: Budgets
) -> _Decision:
    """The job waits for a worker that can run it. A value of the wrong type is dead at once unless
    a worker with another signature lives: it is usually the mistake of a producer."""
    elsewhere = bool(outcome.elsewhere)
    error = outcome.message or f"{_NO_HANDLER} for kind {job.kind!r}"
    if outcome.by_value and not elsewhere:
        return _Decision(Event.DIE, JobStatus.DEAD, error=error)
    if _used_up(job.missing_since, now, budgets.missing_s) and (outcome.by_value or not elsewhere):
        return _Decision(Event.MISSING, JobStatus.DEAD, error=error)
    waited_s = 0.0 if job.missing_since is None else (now - job.missing_since) / SECOND
    max_delay_s = budgets.handover_s if elsewhere else budgets.missing_delay_s
    delay_s = min(max(budgets.missing_first_s, waited_s), max_delay_s)
    if outcome.message:
        error += WAITS_FOR_VERSION
    return _Decision(Event.MISSING, JobStatus.SCHEDULED, delay_s * (0.5 + roll), error)


def final_status(status: JobStatus, *, cancel_requested: bool) -> JobStatus:
    """The state that a finish leads to: a cancel request overrides every state but done."""
    if cancel_requested and status is not JobStatus.DONE:
        return JobStatus.CANCELLED
    return status


def reaped(
    *, started: bool, attempts: int, max_attempts: int, cancel_requested: bool
) -> tuple[JobStatus, int]:
    """(state, attempts) of a running job whose owner is dead. The attempt is given back if the job
    had not started. Postgres has the same rule in ``reap_v1``."""
    left = attempts if started else max(attempts - 1, 0)
    if cancel_requested:
        return JobStatus.CANCELLED, left
    return (JobStatus.DEAD if left >= max_attempts else JobStatus.PENDING), left


def _used_up(since: Instant | None, now: Instant, budget_s: float) -> bool:
    return since is not None and now - since > budget_s * SECOND
