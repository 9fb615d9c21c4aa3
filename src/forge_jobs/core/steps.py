"""Steps: results of parts of a handler that are stored under a name, so that a later run of the job
uses the stored value instead of running that part again.

A job's steps are its *history*. They are only inserted; the first write of a name stays. They are
deleted with the job, by a restart, and by a retry from a step.
"""

import hashlib
from enum import StrEnum
from typing import Final

from msgspec import Struct

from .errors import BadName
from .events import Wait
from .instant import Instant
from .names import key_text

MAX_STEPS: Final = 10_000
MAX_VALUE_BYTES: Final = 256 << 10
MAX_HISTORY_BYTES: Final = 64 << 20
MAX_FAILED_RUNS: Final = 100
# With a claim come at most so many steps and bytes of values; the engine reads the rest by page.
MAX_CLAIMED_STEPS: Final = 1_000
MAX_CLAIMED_BYTES: Final = 1 << 20
_MAX_NAME_LENGTH: Final = 200
_KEY_SEPARATOR: Final = "\x1f"
_NUMBER_SIGN: Final = "#"


class StepKind(StrEnum):
    """What a step holds.

    *step*: the value of a function. *error*: an error that the caller declared (``errors=``).
    *sleep*: the instant until which the job sleeps. *event*: the event that a wait took
    (``core.events.TakenEvent``). *timeout*: a wait whose deadline passed. *cursor*: the ``seq`` of
    the last event of a topic that the job took before a restart; its name is ``cursor_name``.
    *unused*: the names of steps that the run that ended the job did not use
    (``core.unused_steps``).
    """

    STEP = "step"
    ERROR = "error"
    SLEEP = "sleep"
    EVENT = "event"
    TIMEOUT = "timeout"
    CURSOR = "cursor"
    UNUSED = "unused"


class StepWrite(Struct, frozen=True, gc=False):
    """One step to store; valid only for the claim with this key and epoch.

    ``name`` is the identity (``step_identity``). ``began_at`` and ``ended_at`` are store time as
    the worker knows it. ``value`` is JSON text. ``fingerprint`` identifies the arguments of a
    function; None if there is none.
    """

    key: int
    epoch: int
    name: str
    kind: StepKind
    began_at: Instant
    ended_at: Instant
    value: bytes | None = None
    fingerprint: int | None = None


class StepRecord(Struct, frozen=True, gc=False):
    """One stored step. ``epoch`` is that of the claim that stored it. ``value`` is None also where
    values were not asked for; ``size`` is its length in bytes."""

    name: str
    kind: StepKind
    epoch: int
    began_at: Instant
    ended_at: Instant
    value: bytes | None = None
    fingerprint: int | None = None
    size: int = 0


class ClaimedSteps(Struct, frozen=True):
    """The history that comes with a claim; None for a job without one.

    ``records`` are in the order of their names. ``more``: the job has others after the last one, to
    be read by page. ``failed_runs``: how many runs failed whose attempt was given back.
    """

    records: tuple[StepRecord, ...] = ()
    more: bool = False
    failed_runs: int = 0


class FinishSteps(Struct, frozen=True, kw_only=True):
    """What the finish of a run with steps adds to a ``Finish``.

    Every finish of a run whose job has stored steps carries one, so that the store knows it without
    a look. ``attempt_returned``: a failure that spends no attempt, because this run stored a step.
    ``steps`` are stored with the finish, if it is applied. ``run_at``: when the job is due again,
    instead of ``delay_s``. ``wait``: what a suspended job waits for. ``payload``: the arguments of
    a restart, which deletes all other steps of the job.
    """

    attempt_returned: bool = False
    steps: tuple[StepWrite, ...] = ()
    run_at: Instant | None = None
    wait: Wait | None = None
    payload: bytes | None = None


def step_name(value: object) -> str:
    """A step's name as the user gives it, or BadName."""
    rule = f"use 1 to {_MAX_NAME_LENGTH} printable characters without '#'"
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME_LENGTH:
        raise BadName("step", value, rule)
    if _NUMBER_SIGN in value or not value.isprintable():
        raise BadName("step", value, rule)
    return value


def step_key(value: object) -> str:
    """The text of a step's key, or BadName. Whole numbers count as their digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return key_text("step key", value)


def step_identity(name: str, *, key: str | None = None, number: int = 1) -> str:
    """The name under which a step is stored: with its key, or with the number of the call."""
    if key is not None:
        return f"{name}{_KEY_SEPARATOR}{key}"
    return name if number == 1 else f"{name}{_NUMBER_SIGN}{number}"


def cursor_name(topic: str) -> str:
    """The name of the cursor of a topic: no step of a user can have it."""
    return f"{_NUMBER_SIGN}{topic}"


def deadline_name(identity: str) -> str:
    """The name of the *sleep* that keeps the deadline of a wait, so that a wait that begins again
    in a later run ends when it would have ended."""
    return f"{_NUMBER_SIGN}{_NUMBER_SIGN}{identity}"


def is_internal(identity: str) -> bool:
    """Whether handlers did not name it: a cursor, a deadline, the names of unused steps."""
    return identity.startswith(_NUMBER_SIGN)


def shown_step(identity: str) -> str:
    """A stored name as people read it: ``fetch[a.png]``, ``charge#2``."""
    name, separator, key = identity.partition(_KEY_SEPARATOR)
    return f"{name}[{key}]" if separator else name


def fingerprint_of(arguments: bytes) -> int:
    """A number of 63 bits that differs where the arguments differ."""
    digest = hashlib.blake2b(arguments, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
