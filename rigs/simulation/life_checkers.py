"""The judges of processes: who was taken for dead, and who would not let the store rest."""

from collections import Counter

from forge_jobs.core.status import Event
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import Final
from rigs.simulation.history import Answered, Called, Fault, Heard, History, Left, Moved, Registered

MAX_CALLS_PER_SECOND = 60
_BUSY = ("jobs.exchange", "jobs.enqueue")
_ENDS = ("crash", "exit", "shutdown")
_BEGINS_ABSENCE = {"stop": "resume", "cut": "mend"}


def kept_alive(history: History, final: Final) -> Found:
    """A process whose heartbeats get through is not taken for dead, however long its handlers
    block the job loop: every reap has a crash, a stop, a partition or troubled heartbeats behind
    it."""
    who: dict[int, str] = {}
    lease: dict[int, int] = {}
    gone: set[int] = set()
    troubled: dict[str, int] = {}
    absent: dict[str, set[str]] = {}
    called: dict[tuple[str, int], int] = {}
    for record in history.records:
        match record:
            case Registered(owner=owner):
                who[owner], lease[owner] = record.who, record.lease_us
                gone.update(record.replaced)
            case Left(owner=owner):
                gone.add(owner)
            case Called(op="processes.heartbeat"):
                called[record.who, record.call] = record.at
            case Answered(op="processes.heartbeat"):
                took = record.at - called.pop((record.who, record.call))
                if record.heard is not Heard.OK or took > min(lease.values()) // 10:
                    troubled[record.who] = record.at
            case Fault(what=what):
                _note_absence(record, absent, troubled)
                if what in _ENDS:
                    absent.setdefault(record.who, set()).add("gone")
            case Moved(event=Event.REAP, former=former) if former is not None:
                name = who.get(former, "?")
                excused = former in gone or absent.get(name)
                recently = troubled.get(name, -(1 << 60)) > record.at - 2 * lease.get(former, 0)
                if not excused and not recently:
                    yield Violation(
                        "innocent",
                        record.key,
                        f"job {record.key} was taken at {record.at} from {name} (process "
                        f"{former}), which nothing had kept from beating",
                    )
            case _:
                pass


def unhurried(history: History, final: Final) -> Found:
    """Nobody asks the store the same thing in a tight loop."""
    calls = Counter(
        (call.who, call.op, call.at // 1_000_000)
        for call in history.of(Called)
        if call.op not in _BUSY
    )
    for (who, op, second), count in calls.items():
        if count > MAX_CALLS_PER_SECOND:
            yield Violation("spin", None, f"{who} called {op} {count} times in second {second}")


def _note_absence(fault: Fault, absent: dict[str, set[str]], troubled: dict[str, int]) -> None:
    absences = absent.setdefault(fault.who, set())
    if fault.what in _BEGINS_ABSENCE:
        absences.add(_BEGINS_ABSENCE[fault.what])
    elif fault.what in absences:
        absences.discard(fault.what)
        troubled[fault.who] = fault.at
