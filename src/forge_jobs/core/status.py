"""The states of a job and every legal transition between them, as a table.

The memory backend, the conformance suite and the documentation use this table. It is the only
definition of which transitions are legal.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class JobStatus(StrEnum):
    """The state of a job.

    *scheduled*: due later. *pending*: due, may be claimed. *held*: due, but its limit key is full
    or its lane is busy. *running*: claimed. *failed*: an attempt failed, waits for its retry.
    *suspended*: its handler waits for an event; it holds no slot. *done*, *dead* and *cancelled*
    are terminal.

    >>> send.enqueue("a@b.c").refresh().status is JobStatus.PENDING
    True
    """

    SCHEDULED = "scheduled"
    PENDING = "pending"
    HELD = "held"
    RUNNING = "running"
    FAILED = "failed"
    SUSPENDED = "suspended"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """The cause of a transition."""

    ENQUEUE = "enqueue"
    PROMOTE = "promote"
    HOLD = "hold"
    UNHOLD = "unhold"
    CLAIM = "claim"
    DONE = "done"
    FAIL = "fail"
    DIE = "die"
    CRASH = "crash"
    THROTTLE = "throttle"
    SNOOZE = "snooze"
    SUSPEND = "suspend"
    RESUME = "resume"
    RESTART = "restart"
    MISSING = "missing"
    RELEASE = "release"
    REAP = "reap"
    CANCEL = "cancel"
    EXPIRE = "expire"
    RETRY = "retry"
    RUN_NOW = "run_now"
    RESCHEDULE = "reschedule"
    DELETE = "delete"


class Attempts(StrEnum):
    """What a transition does to the number of attempts."""

    KEPT = "kept"
    SPENT = "spent"
    GIVEN_BACK = "given back"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Rule:
    """One legal transition. ``source`` None: a new job. ``target`` None: the job is deleted."""

    source: JobStatus | None
    event: Event
    target: JobStatus | None
    attempts: Attempts
    when: str


_S, _P, _H, _R = JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.HELD, JobStatus.RUNNING
_F, _D, _X, _C = JobStatus.FAILED, JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED
_U = JobStatus.SUSPENDED

WAITING: Final = (_S, _P, _H, _F)
TERMINAL: Final = (_D, _X, _C)
LIVE: Final = (*WAITING, _U, _R)
RETRYABLE: Final = (_F, _X, _C)

_KEPT, _SPENT = Attempts.KEPT, Attempts.SPENT
_BACK, _RESET = Attempts.GIVEN_BACK, Attempts.RESET


def _rules() -> tuple[Rule, ...]:
    rules = [
        Rule(None, Event.ENQUEUE, _P, _KEPT, "due now and its dedupe key is free"),
        Rule(None, Event.ENQUEUE, _S, _KEPT, "due later and its dedupe key is free"),
        Rule(None, Event.ENQUEUE, _H, _KEPT, "due now, but its limit key is known to be full"),
        Rule(_S, Event.PROMOTE, _P, _KEPT, "due"),
        Rule(_F, Event.PROMOTE, _P, _KEPT, "its back-off is over"),
        Rule(_P, Event.HOLD, _H, _KEPT, "its limit key is full"),
        Rule(_H, Event.UNHOLD, _P, _KEPT, "there is room for its key"),
        Rule(_P, Event.CLAIM, _R, _SPENT, "queue open, claiming process alive"),
        Rule(_R, Event.DONE, _D, _KEPT, "always stands, also after a cancel request"),
        Rule(_R, Event.FAIL, _F, _KEPT, "attempts left"),
        Rule(_R, Event.FAIL, _F, _BACK, "the run stored a step, failed runs left"),
        Rule(_R, Event.FAIL, _X, _KEPT, "no attempt left"),
        Rule(_R, Event.DIE, _X, _KEPT, "permanent error"),
        Rule(_R, Event.CRASH, _F, _KEPT, "its own child process died, below the crash limit"),
        Rule(_R, Event.CRASH, _X, _KEPT, "its own child process died, crash limit reached"),
        Rule(_R, Event.THROTTLE, _S, _BACK, "within the throttle budget"),
        Rule(_R, Event.THROTTLE, _X, _KEPT, "throttle budget used up"),
        Rule(_R, Event.SNOOZE, _S, _BACK, "the handler asked to be called later"),
        Rule(_R, Event.SUSPEND, _U, _BACK, "its handler waits for an event"),
        Rule(_R, Event.SUSPEND, _P, _BACK, "the event is there already"),
        Rule(_R, Event.RESTART, _P, _BACK, "its handler asked for a new history"),
        Rule(_U, Event.RESUME, _P, _KEPT, "its event was sent, or its deadline has passed"),
        Rule(_R, Event.MISSING, _S, _BACK, "no handler here, within its budget"),
        Rule(_R, Event.MISSING, _X, _KEPT, "no handler anywhere for too long"),
        Rule(_R, Event.RELEASE, _P, _BACK, "released by its worker"),
        Rule(_R, Event.REAP, _P, _KEPT, "owner dead, the job had started, attempts left"),
        Rule(_R, Event.REAP, _P, _BACK, "owner dead, the job had not started"),
        Rule(_R, Event.REAP, _X, _KEPT, "owner dead, no attempt left"),
        Rule(_R, Event.CANCEL, _R, _KEPT, "recorded as a request"),
        Rule(_R, Event.DELETE, _R, _KEPT, "recorded as a cancel request"),
    ]
    cancellable = (Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE)
    parking = (Event.SUSPEND, Event.RESTART)
    for event in (*cancellable, *parking, Event.MISSING, Event.RELEASE, Event.REAP):
        rules.append(Rule(_R, event, _C, _KEPT, "a cancel was requested"))
    rules.append(Rule(_R, Event.REAP, _C, _BACK, "a cancel was requested, it had not started"))
    for status in WAITING:
        rules.append(Rule(status, Event.CANCEL, _C, _KEPT, "never starts afterwards"))
        rules.append(Rule(status, Event.EXPIRE, _C, _KEPT, "its expiry has passed"))
    rules.append(Rule(_U, Event.CANCEL, _C, _KEPT, "never starts afterwards"))
    for status in RETRYABLE:
        rules.append(Rule(status, Event.RETRY, _P, _RESET, "no other live job holds its key"))
    for status in (_S, _F, _U):
        rules.append(Rule(status, Event.RUN_NOW, _P, _KEPT, "an operator asked for it"))
    for status, target in ((_S, _S), (_P, _S), (_H, _S), (_F, _F)):
        rules.append(Rule(status, Event.RESCHEDULE, target, _KEPT, "it is given another due time"))
    for status in (*WAITING, _U, *TERMINAL):
        rules.append(Rule(status, Event.DELETE, None, _KEPT, "an operator asked for it"))
    return tuple(rules)


TRANSITIONS: Final = _rules()


def targets(source: JobStatus | None, event: Event) -> tuple[JobStatus | None, ...]:
    """All states that ``event`` may lead to from ``source``; empty when it is illegal."""
    return tuple(
        dict.fromkeys(
            rule.target for rule in TRANSITIONS if rule.source == source and rule.event == event
        )
    )


def is_terminal(status: JobStatus) -> bool:
    """Whether only an operator can change the job again, by retry or delete."""
    return status in TERMINAL
