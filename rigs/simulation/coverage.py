"""What a campaign really met: a fault that never bites proves nothing."""

from collections import Counter

from forge_jobs.core.errors import Unavailable
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Verdict
from rigs.simulation.history import (
    Answered,
    Fault,
    Finished,
    Heard,
    History,
    Moved,
    Ran,
    Registered,
    Stored,
)

_EVENTS = {
    Event.REAP: "jobs reaped",
    Event.RELEASE: "claims handed back",
    Event.EXPIRE: "jobs expired",
    Event.SNOOZE: "snoozes",
    Event.THROTTLE: "throttles",
    Event.MISSING: "kinds unknown to a node",
    Event.HOLD: "jobs held for want of room",
    Event.RETRY: "retries by a person",
    Event.RUN_NOW: "run-nows by a person",
    Event.DELETE: "deletions by a person",
}

MUST_BE_SEEN = (
    "jobs stored", "duplicates answered", "runs", "crashes", "engine stalls", "whole-process stops",
    "partitions", "graceful shutdowns", "wall clocks set anew", "replies or requests lost",
    "calls refused", "jobs reaped", "claims handed back", "stale finishes refused",
    "repeated finishes recognised", "processes replaced by their parent", "waiting jobs cancelled",
    "running jobs cancelled", "jobs expired", "jobs dead", "snoozes", "throttles",
    "kinds unknown to a node", "retries by a person", "processes that registered anew",
)  # fmt: skip

_FAULTS = {
    "crash": "crashes",
    "stall": "engine stalls",
    "stop": "whole-process stops",
    "cut": "partitions",
    "shutdown": "graceful shutdowns",
    "clock": "wall clocks set anew",
    "replace": "processes replaced by their parent",
    "pause": "queues paused",
    "slots": "slot changes",
    "quiet": "nodes asked to be quiet",
    "limit": "limits changed",
}


def sightings(history: History) -> Counter[str]:
    """How often each interesting thing happened."""
    seen: Counter[str] = Counter()
    registered: Counter[str] = Counter()
    for record in history.records:
        match record:
            case Stored(duplicate=True):
                seen["duplicates answered"] += 1
            case Moved(event=Event.ENQUEUE):
                seen["jobs stored"] += 1
            case Moved():
                seen.update(_of_transition(record))
            case Ran(end=""):
                seen["runs"] += 1
            case Fault(what=what):
                if what in _FAULTS:
                    seen[_FAULTS[what]] += 1
            case Answered(heard=Heard.UNKNOWN):
                seen["replies or requests lost"] += 1
            case Answered(heard=Heard.FAIL, note=note) if note.startswith(Unavailable.__name__):
                seen["calls refused"] += 1
            case Finished(verdict=Verdict.STALE):
                seen["stale finishes refused"] += 1
            case Finished(verdict=Verdict.ALREADY):
                seen["repeated finishes recognised"] += 1
            case Registered(who=who):
                registered[who] += 1
                seen["processes that registered anew"] += registered[who] > 1
            case _:
                pass
    return seen


def _of_transition(move: Moved) -> list[str]:
    names = [_EVENTS[move.event]] if move.event in _EVENTS else []
    if move.target is JobStatus.DEAD:
        names.append("jobs dead")
    elif move.target is JobStatus.CANCELLED and move.event is not Event.EXPIRE:
        waited = move.event is Event.CANCEL
        names.append("waiting jobs cancelled" if waited else "running jobs cancelled")
    return names
