"""The checkers of processes: wrongly reaped processes, and calls in a tight loop."""

from collections import Counter

from forge_jobs.core.status import Event
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import (
    Answered,
    Called,
    CallResult,
    Deregistered,
    Fault,
    History,
    Registered,
    Transitioned,
)

MAX_CALLS_PER_SECOND = 60
_HOT_CALLS = ("jobs.exchange", "jobs.enqueue")
_EXIT_FAULTS = ("crash", "exit", "shutdown")
_ABSENCE_FAULTS = {"stop": "resume", "cut": "mend"}


def live_processes_not_reaped(history: History, final: FinalState) -> Found:
    """A process whose heartbeats arrive is never reaped, however long its handlers block the job
    loop: every reap follows a crash, a stop, a partition or failed heartbeats."""
    who: dict[int, str] = {}
    lease: dict[int, int] = {}
    gone: set[int] = set()
    disturbed: dict[str, int] = {}
    absent: dict[str, set[str]] = {}
    called: dict[tuple[str, int], int] = {}
    for record in history.records:
        match record:
            case Registered(owner=owner):
                who[owner], lease[owner] = record.who, record.lease_us
                gone.update(record.replaced)
            case Deregistered(owner=owner):
                gone.add(owner)
            case Called(op="processes.heartbeat"):
                called[record.who, record.call] = record.at
            case Answered(op="processes.heartbeat"):
                took = record.at - called.pop((record.who, record.call))
                if record.heard is not CallResult.OK or took > min(lease.values()) // 10:
                    disturbed[record.who] = record.at
            case Fault(what=what):
                _track_absence(record, absent, disturbed)
                if what in _EXIT_FAULTS:
                    absent.setdefault(record.who, set()).add("gone")
            case Transitioned(event=Event.REAP, former=former) if former is not None:
                name = who.get(former, "?")
                excused = former in gone or absent.get(name)
                recently = disturbed.get(name, -(1 << 60)) > record.at - 2 * lease.get(former, 0)
                if not excused and not recently:
                    yield Violation(
                        "innocent",
                        record.key,
                        f"job {record.key} was reaped at {record.at} from {name} (process "
                        f"{former}), whose heartbeats were not disturbed",
                    )
            case _:
                pass


def no_tight_loops(history: History, final: FinalState) -> Found:
    """No process repeats the same call to the store in a tight loop."""
    calls = Counter(
        (call.who, call.op, call.at // 1_000_000)
        for call in history.of(Called)
        if call.op not in _HOT_CALLS
    )
    for (who, op, second), count in calls.items():
        if count > MAX_CALLS_PER_SECOND:
            yield Violation("spin", None, f"{who} called {op} {count} times in second {second}")


def _track_absence(fault: Fault, absent: dict[str, set[str]], disturbed: dict[str, int]) -> None:
    absences = absent.setdefault(fault.who, set())
    if fault.what in _ABSENCE_FAULTS:
        absences.add(_ABSENCE_FAULTS[fault.what])
    elif fault.what in absences:
        absences.discard(fault.what)
        disturbed[fault.who] = fault.at
