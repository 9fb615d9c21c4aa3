"""What a worker and its child processes say to each other: one JSON object per line."""

from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine, NewJob
from forge_jobs.core.outcome import (
    AnyOutcome,
    Crashed,
    Dead,
    Done,
    Failed,
    Missing,
    Snooze,
    Stopped,
    Throttled,
)
from forge_jobs.engine.running.run import RunOutcome


class Target(Struct, frozen=True):
    """Where the child finds the handler; see ``registry.ChildTarget``."""

    module: str | None
    file: str | None
    kind: str


class SetUp(Struct, frozen=True, tag="set_up"):
    """The first line to a child: import from the same places as the worker."""

    path: tuple[str, ...]


class Take(Struct, frozen=True, kw_only=True, tag="take"):
    """Run this job. ``number`` tells one job of a child from the next."""

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
    tags: tuple[str, ...] = ()
    trace: str | None = None


class Halt(Struct, frozen=True, tag="halt"):
    """The job should end; the child is killed soon."""

    number: int
    reason: str


class Ready(Struct, frozen=True, tag="ready"):
    """The first line of a child: it listens."""


class Taken(Struct, frozen=True, tag="taken"):
    """From here on the job is to blame if the child dies."""

    number: int


class Said(Struct, frozen=True, tag="said", omit_defaults=True):
    """Progress, or a line for the job's log."""

    number: int
    progress: float | None = None
    note: str | None = None
    line: LogLine | None = None


class Over(Struct, frozen=True, kw_only=True, tag="over", omit_defaults=True):
    """The handler ended. ``carried``: jobs to store in the transaction that records a success."""

    number: int
    how: Literal["done", "failed", "dead", "throttled", "snooze"]
    message: str = ""
    delay_s: float | None = None
    scope: str | None = None
    result: bytes | None = None
    explicit: bool = False
    carried: tuple[NewJob, ...] = ()


ToChild: TypeAlias = SetUp | Take | Halt
ToWorker: TypeAlias = Ready | Taken | Said | Over

encode = msgspec.json.Encoder().encode
decode_to_child = msgspec.json.Decoder(ToChild).decode
decode_to_worker = msgspec.json.Decoder(ToWorker).decode


def over(number: int, ending: RunOutcome, carried: tuple[NewJob, ...]) -> Over:
    """An ending as it travels."""
    outcome: AnyOutcome = ending.outcome
    explicit = ending.explicit
    match outcome:
        case Done():
            return Over(
                number=number, how="done", result=ending.result, explicit=explicit, carried=carried
            )
        case Failed(message=message, retry_after_s=delay_s):
            return Over(
                number=number, how="failed", message=message, delay_s=delay_s, explicit=explicit
            )
        case Stopped(message=message) | Crashed(message=message):
            return Over(number=number, how="failed", message=message, explicit=explicit)
        case Missing():
            return Over(number=number, how="failed", message=str(outcome), explicit=explicit)
        case Dead(message=message):
            return Over(number=number, how="dead", message=message, explicit=explicit)
        case Throttled(retry_after_s=delay_s, scope=scope):
            return Over(
                number=number, how="throttled", delay_s=delay_s, scope=scope, explicit=explicit
            )
        case Snooze(delay_s=delay_s):
            return Over(number=number, how="snooze", delay_s=delay_s, explicit=explicit)
        case _:
            assert_never(outcome)


def ending(message: Over) -> RunOutcome:
    """The ending behind a message; wrong data from a misbehaving child is a failure."""
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
        case _:
            assert_never(message.how)
    return RunOutcome(outcome, result=message.result, explicit=message.explicit)
