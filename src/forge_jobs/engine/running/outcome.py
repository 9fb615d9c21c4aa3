"""From what a handler did to what is written: a value, an exception or an interruption.

``outcome_of_value`` and ``outcome_of_error`` run where the handler ran (also in a child process)
and never raise; ``finish_of`` runs on the job loop and knows whether the handler was told to end.
"""

import asyncio
from typing import assert_never

from forge_jobs.core import payload
from forge_jobs.core.decide import Budgets, Finish, StepProgress, decide
from forge_jobs.core.errors import ForgeError
from forge_jobs.core.instant import Instant
from forge_jobs.core.kind_signature import ArgumentMismatch
from forge_jobs.core.outcome import (
    AnyOutcome,
    Dead,
    Done,
    Failed,
    JobOutcome,
    Missing,
    Parked,
    Restarted,
    Snooze,
    Stopped,
    Throttled,
)
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import ClaimedSteps
from forge_jobs.engine.steps.signals import is_suspended
from forge_jobs.engine.steps.unused_mark import with_unused
from forge_jobs.kit.traceback_text import traceback_text

from .error_text import error_text, storable
from .registry import Handler
from .run import Run, RunOutcome, StopReason

NO_VALUE = RunOutcome(Done())


def outcome_of_value(handler: Handler, value: object) -> RunOutcome:
    """The outcome of a handler that returned."""
    if value is None:
        return NO_VALUE
    if isinstance(value, JobOutcome):
        return _chosen(handler, value)
    return _encoded(handler, value, explicit=False)


def outcome_of_error(handler: Handler, error: BaseException) -> RunOutcome:
    """The outcome of a handler that raised, whatever it raised."""
    try:
        if isinstance(error, JobOutcome):
            run_outcome = _chosen(handler, error)
        elif is_suspended(error):
            # Its steps say what it waits for.
            return RunOutcome(Parked(None, None), explicit=True)
        else:
            run_outcome = RunOutcome(_failure(handler, error))
        outcome = run_outcome.outcome
        if isinstance(outcome, Failed | Dead):
            outcome.traceback = traceback_text(error)
        return run_outcome
    except BaseException:
        return RunOutcome(Failed(f"{type(error).__name__} (it cannot be described)"))


def finish_of(
    run: Run,
    run_outcome: RunOutcome,
    *,
    now: Instant,
    roll: float,
    backoff: Backoff,
    budgets: Budgets,
    ran_s: float,
    waited_s: float = 0.0,
) -> Finish | None:
    """The finish that records an outcome; None when the job is released unspent."""
    outcome = run_outcome.outcome
    if run.stop is not None:
        stopped = _after_stop(run, run.stop, run_outcome)
        if stopped is None:
            return None
        outcome = stopped
    is_done = isinstance(outcome, Done)
    retry = run.handler.retry
    progress, backoff = _with_steps(run, backoff if retry is None else retry.backoff)
    finish = decide(
        run.job,
        outcome,
        now=now,
        roll=roll,
        backoff=backoff,
        budgets=budgets,
        result=run_outcome.result if is_done else None,
        jobs=tuple(run.successors) if is_done and run.successors else (),
        ran_s=ran_s,
        waited_s=waited_s,
        progress=progress,
    )
    if run.steps is None or isinstance(outcome, Stopped):
        return finish
    return with_unused(run.steps, finish, now)


def _with_steps(run: Run, backoff: Backoff) -> tuple[StepProgress | None, Backoff]:
    """What a finish must know of the run's steps, and the delay of the retry that they ask for."""
    steps = run.steps
    if steps is None:
        return None, backoff
    if isinstance(steps, ClaimedSteps):
        retry = run.handler.retry
        return StepProgress(False) if retry is None else StepProgress(False, retry.total), backoff
    delay_s = steps.exact_delay_s
    if delay_s is not None:
        backoff = Backoff(base_s=delay_s, max_s=delay_s, jitter=0.0)
    return steps.progress, backoff


def unstorable(finish: Finish, error: Exception) -> Finish:
    """What is recorded instead of a finish that the store refuses as invalid."""
    return Finish(
        finish.key, finish.epoch, Event.DIE, JobStatus.DEAD, finish.queue, finish.kind,
        error=storable(f"the store refused this job's outcome: {error}"), ran_s=finish.ran_s,
        waited_s=finish.waited_s, enqueued_at=finish.enqueued_at, tags=finish.tags,
    )  # fmt: skip


def _after_stop(run: Run, stop: StopReason, run_outcome: RunOutcome) -> AnyOutcome | None:
    outcome = run_outcome.outcome
    match stop:
        case StopReason.TIMEOUT:
            if run_outcome.explicit and not isinstance(outcome, Done):
                return outcome
            timed_out = Failed(f"timed out after {run.timeout_s or 0:g} s")
            # Where the handler was when it was interrupted.
            timed_out.traceback = outcome.traceback
            return timed_out
        case StopReason.CANCEL:
            return outcome if isinstance(outcome, Done) else Stopped()
        case StopReason.LOST | StopReason.SHUTDOWN:
            # The handler ends because this process must. Only an outcome it chose itself counts;
            # a failure is how a cooperative handler ends, and says nothing about the job.
            if isinstance(outcome, Done):
                return outcome
            chosen = run_outcome.explicit and not isinstance(outcome, Failed)
            return outcome if chosen else None
        case _:
            assert_never(stop)


def _failure(handler: Handler, error: BaseException) -> Failed | Dead | Missing:
    text = error_text(error)
    if isinstance(error, asyncio.CancelledError):
        return Failed(text)
    if isinstance(error, ArgumentMismatch):
        return Missing(storable(error), names=error.names, by_value=error.by_value)
    if handler.retry is not None and not handler.retry.allows(error):
        return Dead(text)
    return Failed(text)


def _chosen(handler: Handler, outcome: JobOutcome) -> RunOutcome:
    match outcome:
        case Done(value=value):
            return NO_VALUE if value is None else _encoded(handler, value, explicit=True)
        case Failed(message=message, retry_after_s=min_delay_s):
            failed = Failed(storable(message), retry_after=min_delay_s)
            failed.traceback = outcome.traceback
            return RunOutcome(failed, explicit=True)
        case Dead(message=message):
            dead = Dead(storable(message))
            dead.traceback = outcome.traceback
            return RunOutcome(dead, explicit=True)
        case Throttled(retry_after_s=wait_s, scope=scope):
            declared = scope if scope in handler.scopes else None
            return RunOutcome(Throttled(wait_s, declared), explicit=True)
        case Snooze() | Restarted():
            return RunOutcome(outcome, explicit=True)
        case Stopped(message=message):
            return RunOutcome(Failed(storable(message)))
        case _:
            return RunOutcome(Failed(error_text(outcome)))


def _encoded(handler: Handler, value: object, *, explicit: bool) -> RunOutcome:
    try:
        result = payload.encode(value, limit=handler.result_limit, what="result", fixed_limit=True)
    except ForgeError as error:
        # A retry would repeat its effects, and the value could not be stored then either.
        return RunOutcome(Dead(storable(error)))
    except BaseException as error:
        return RunOutcome(Dead(f"result cannot be stored as JSON: {error_text(error)}"))
    return RunOutcome(Done(), result=result, explicit=explicit)
