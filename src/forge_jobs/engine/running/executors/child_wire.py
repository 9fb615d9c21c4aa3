"""The messages between a worker and its child processes: one JSON object per line."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from forge_jobs.core.events import Wait
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine, NewJob
from forge_jobs.core.outcome import (
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
from forge_jobs.core.steps import StepRecord, StepWrite
from forge_jobs.engine.running.run import RunOutcome


class Target(Struct, frozen=True):
    """Where the child finds the handler; see ``registry.ChildTarget``."""

    module: str | None
    file: str | None
    kind: str


class SetUp(Struct, frozen=True, tag="set_up"):
    """The first line to a child: use the worker's import path, and log what the worker would.
    ``log_level`` is that of the worker's root logger."""

    path: tuple[str, ...]
    log_level: int
    logs_warnings: bool


class StartRun(Struct, frozen=True, kw_only=True, tag="start"):
    """Run this job. ``number`` tells one job of a child from the next. ``options`` are the rare
    options of the run. ``ran_s``: so long it has lasted already; a span and no instant, since a
    wall clock that is set meanwhile must not move its start. ``key``, ``epoch`` and ``owner`` are
    the claim; ``store_now`` is store time."""

    number: int
    target: Target
    host_id: str
    store_tag: int
    id: str
    kind: str
    queue: str
    payload: bytes
    attempts: int
    max_attempts: int
    enqueued_at: Instant
    deadline_at: Instant | None = None
    ran_s: float = 0.0
    tags: tuple[str, ...] = ()
    trace: str | None = None
    options: Mapping[str, Any] | None = None
    key: int = 0
    epoch: int = 0
    owner: int = 0
    store_now: Instant = 0


class StopRun(Struct, frozen=True, tag="stop"):
    """The job should end; the child is killed soon after."""

    number: int
    reason: str


class StepsReply(Struct, frozen=True, tag="steps_reply", omit_defaults=True):
    """The answer to the ``AskSteps`` with the same ``question``."""

    number: int
    question: int
    record: StepRecord | None = None
    is_so: bool = False
    count: int = 0
    error: str | None = None
    is_lost: bool = False


class ChildReady(Struct, frozen=True, tag="ready"):
    """The first line of a child: it is ready for jobs."""


class RunStarted(Struct, frozen=True, tag="started"):
    """The job has started: from here on a death of the child counts against it."""

    number: int


class RunReport(Struct, frozen=True, tag="report", omit_defaults=True):
    """Progress, or a line for the job's log."""

    number: int
    progress: float | None = None
    note: str | None = None
    line: LogLine | None = None


class RunLogged(Struct, frozen=True, tag="logged", omit_defaults=True):
    """A record that was logged in the child; the worker handles it as its own."""

    number: int
    logger: str
    level: int
    message: str
    trace: str | None = None


class StepsPark(Struct, frozen=True, omit_defaults=True):
    """The handler is unwound next."""

    where: str
    wait: Wait | None = None
    wake_at: Instant | None = None
    steps: tuple[StepWrite, ...] = ()


class AskSteps(Struct, frozen=True, tag="steps", omit_defaults=True):
    """A handler asks for one thing about its steps, and waits for the answer. ``question`` counts
    those of a run: a signal handler may end the wait, and the next question comes before the answer
    to this one.

    ``over``: the end of a sleep. ``stored_in``: a step that was stored in the handler's own
    transaction, and its name as people read it. ``retry``: the error and the delay of a retry.
    """

    number: int
    question: int
    find: str | None = None
    store: StepWrite | None = None
    wait: Wait | None = None
    over: Instant | None = None
    park: StepsPark | None = None
    stored_in: tuple[StepWrite, str] | None = None
    room: tuple[str, int] | None = None
    retry: tuple[str, float] | None = None
    warning: str | None = None
    committed: bool = False


class RunFinished(Struct, frozen=True, kw_only=True, tag="finished", omit_defaults=True):
    """The handler ended. ``successors``: jobs to store in the transaction that finishes it as
    done. ``names`` and ``by_value`` as in ``Missing``."""

    number: int
    how: Literal["done", "failed", "dead", "throttled", "snooze", "missing", "parked", "restarted"]
    message: str = ""
    delay_s: float | None = None
    scope: str | None = None
    result: bytes | None = None
    explicit: bool = False
    successors: tuple[NewJob, ...] = ()
    traceback: str | None = None
    names: tuple[str, ...] | None = None
    by_value: bool = False


ToChild: TypeAlias = SetUp | StartRun | StopRun | StepsReply
ToWorker: TypeAlias = ChildReady | RunStarted | RunReport | RunLogged | RunFinished | AskSteps

encode = msgspec.json.Encoder().encode
decode_to_child = msgspec.json.Decoder(ToChild).decode
decode_to_worker = msgspec.json.Decoder(ToWorker).decode


def finished_message(
    number: int, run_outcome: RunOutcome, successors: tuple[NewJob, ...]
) -> RunFinished:
    """The message for an outcome."""
    outcome: AnyOutcome = run_outcome.outcome
    explicit = run_outcome.explicit
    match outcome:
        case Done():
            return RunFinished(
                number=number,
                how="done",
                result=run_outcome.result,
                explicit=explicit,
                successors=successors,
            )
        case Failed(message=message, retry_after_s=delay_s):
            return RunFinished(
                number=number, how="failed", message=message, delay_s=delay_s, explicit=explicit,
                traceback=outcome.traceback,
            )  # fmt: skip
        case Stopped(message=message) | Crashed(message=message):
            return RunFinished(number=number, how="failed", message=message, explicit=explicit)
        case Missing(message=message, names=names, by_value=by_value):
            return RunFinished(
                number=number, how="missing", message=message, names=names, by_value=by_value
            )
        case Dead(message=message):
            return RunFinished(
                number=number, how="dead", message=message, explicit=explicit,
                traceback=outcome.traceback,
            )  # fmt: skip
        case Throttled(retry_after_s=delay_s, scope=scope):
            return RunFinished(
                number=number, how="throttled", delay_s=delay_s, scope=scope, explicit=explicit
            )
        case Snooze(delay_s=delay_s):
            return RunFinished(number=number, how="snooze", delay_s=delay_s, explicit=explicit)
        case Parked() | Restarted():
            return _ended_for_now(number, outcome)
        case _:
            assert_never(outcome)


def _ended_for_now(number: int, outcome: Parked | Restarted) -> RunFinished:
    if isinstance(outcome, Parked):
        return RunFinished(number=number, how="parked", explicit=True)
    return RunFinished(number=number, how="restarted", result=outcome.payload, explicit=True)


def outcome_of(message: RunFinished) -> RunOutcome:
    """The outcome in a message; wrong data from a misbehaving child is a failure."""
    outcome: AnyOutcome
    match message.how:
        case "done":
            outcome = Done()
        case "failed":
            outcome = Failed(message.message, retry_after=message.delay_s)
        case "dead":
            outcome = Dead(message.message)
        case "throttled":
            outcome = Throttled(message.delay_s, message.scope)
        case "snooze":
            outcome = Snooze(message.delay_s or 1.0)
        case "parked":
            outcome = Parked(None, None)
        case "restarted":
            outcome = Restarted(message.result or b"{}")
            return RunOutcome(outcome, explicit=message.explicit)
        case "missing":
            outcome = Missing(message.message, names=message.names, by_value=message.by_value)
        case _:
            assert_never(message.how)
    if message.traceback is not None:
        outcome.traceback = message.traceback
    return RunOutcome(outcome, result=message.result, explicit=message.explicit)
