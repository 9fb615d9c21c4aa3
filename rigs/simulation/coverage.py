"""Counts the events of a campaign: a fault that never had an effect proves nothing."""

from collections import Counter

from forge_jobs.core.errors import Unavailable
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Verdict
from rigs.simulation.history import (
    Answered,
    CallResult,
    EffectCommitted,
    Fault,
    Finished,
    HandlerRan,
    History,
    Registered,
    StepRefused,
    StepsDeleted,
    StepStored,
    Stored,
    Transitioned,
)

_EVENTS = {
    Event.REAP: "jobs reaped",
    Event.RELEASE: "claims released",
    Event.EXPIRE: "jobs expired",
    Event.SNOOZE: "snoozes",
    Event.THROTTLE: "throttles",
    Event.MISSING: "jobs refused by an older release",
    Event.HOLD: "jobs held",
    Event.RETRY: "retries by an operator",
    Event.RUN_NOW: "run-nows by an operator",
    Event.DELETE: "deletions by an operator",
    Event.SUSPEND: "jobs suspended",
    Event.RESTART: "restarts",
}

_STEPS = {
    StepKind.STEP: "steps stored",
    StepKind.ERROR: "errors stored as steps",
    StepKind.EVENT: "events taken",
    StepKind.TIMEOUT: "waits timed out",
}

REQUIRED_EVENTS = (
    "jobs stored", "duplicates answered", "runs", "crashes", "engine stalls", "whole-process stops",
    "partitions", "graceful shutdowns", "wall clocks changed", "replies or requests lost",
    "calls refused", "jobs reaped", "claims released", "stale finishes refused",
    "repeated finishes recognised", "processes replaced by their parent", "waiting jobs cancelled",
    "running jobs cancelled", "jobs expired", "jobs dead", "snoozes", "throttles",
    "jobs refused by an older release", "retries by an operator", "processes that registered again",
    "steps stored", "errors stored as steps", "jobs suspended", "events taken", "waits timed out",
    "steps committed with their effects", "restarts", "stale steps refused",
    "repeated steps recognised", "retries from a step",
)  # fmt: skip

_FAULTS = {
    "crash": "crashes",
    "stall": "engine stalls",
    "stop": "whole-process stops",
    "cut": "partitions",
    "shutdown": "graceful shutdowns",
    "clock": "wall clocks changed",
    "replace": "processes replaced by their parent",
    "pause": "queues paused",
    "slots": "slot changes",
    "quiet": "nodes set to quiet",
    "limit": "limits changed",
}


def count_events(history: History) -> Counter[str]:
    """How often each event of interest happened."""
    seen: Counter[str] = Counter()
    registered: Counter[str] = Counter()
    for answer in history.of(Answered):
        if answer.heard is CallResult.UNKNOWN:
            seen["replies or requests lost"] += 1
        elif answer.heard is CallResult.FAIL and answer.note.startswith(Unavailable.__name__):
            seen["calls refused"] += 1
    for record in history.effects:
        match record:
            case Stored(duplicate=True):
                seen["duplicates answered"] += 1
            case Transitioned(event=Event.ENQUEUE):
                seen["jobs stored"] += 1
            case Transitioned():
                seen.update(_of_transition(record))
            case HandlerRan(end=""):
                seen["runs"] += 1
            case Fault(what=what):
                if what in _FAULTS:
                    seen[_FAULTS[what]] += 1
            case Finished(verdict=Verdict.STALE):
                seen["stale finishes refused"] += 1
            case Finished(verdict=Verdict.ALREADY):
                seen["repeated finishes recognised"] += 1
            case StepStored() | StepRefused() | StepsDeleted() | EffectCommitted():
                seen.update(_of_step(record))
            case Registered(who=who):
                registered[who] += 1
                seen["processes that registered again"] += registered[who] > 1
            case _:
                pass
    return seen


def _of_step(record: StepStored | StepRefused | StepsDeleted | EffectCommitted) -> list[str]:
    match record:
        case EffectCommitted():
            return ["steps committed with their effects"]
        case StepStored(kind=kind):
            return [_STEPS[kind]] if kind in _STEPS else []
        case StepRefused(verdict=verdict):
            stale = verdict is Verdict.STALE
            return ["stale steps refused" if stale else "repeated steps recognised"]
        case StepsDeleted(by_retry=by_retry):
            return ["retries from a step"] if by_retry else []


def _of_transition(transition: Transitioned) -> list[str]:
    names = [_EVENTS[transition.event]] if transition.event in _EVENTS else []
    if transition.target is JobStatus.DEAD:
        names.append("jobs dead")
    elif transition.target is JobStatus.CANCELLED and transition.event is not Event.EXPIRE:
        waited = transition.event is Event.CANCEL
        names.append("waiting jobs cancelled" if waited else "running jobs cancelled")
    return names
