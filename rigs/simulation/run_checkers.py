"""The judges of handlers: when they started, and whether two ran the same job at once."""

from dataclasses import dataclass

from forge_jobs.core.status import Event, JobStatus
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import Final
from rigs.simulation.history import Fault, History, Moved, Ran, Registered, key_of

ENDS_A_PROCESS = ("crash", "exit")
FREEZES = ("stall", "stop")
# A process stopped between its last look at the lease and the first step of a handler cannot know.
_THAWED_US = 50_000


@dataclass(slots=True)
class _Run:
    who: str
    start: int
    end: int | None = None


def overlapping_runs(history: History, final: Final) -> Found:
    """Two runs of one job overlap only if the first runner had lost it to the reaper."""
    who = {record.owner: record.who for record in history.of(Registered)}
    taken: dict[int, list[tuple[int, str]]] = {}
    for move in history.of(Moved):
        if move.event is Event.REAP and move.former is not None:
            taken.setdefault(move.key, []).append((move.at, who.get(move.former, "?")))
    for job, runs in _runs(history).items():
        losses = taken.get(key_of(job), [])
        for place, first in enumerate(runs):
            for second in runs[place + 1 :]:
                if first.end is not None and first.end <= second.start:
                    continue
                excused = any(
                    first.start <= at <= second.start and loser == first.who for at, loser in losses
                )
                if not excused:
                    yield Violation(
                        "overlap",
                        key_of(job),
                        f"job {key_of(job)} ({job}) ran on {first.who} from {first.start} to "
                        f"{first.end} and started on {second.who} at {second.start}",
                    )


def started_rightly(history: History, final: Final) -> Found:
    """A handler starts only while the store says that its job runs in this very process.

    So a job that was cancelled while it waited never starts, nor one that a stopped process had
    claimed and lost.
    """
    who: dict[int, str] = {}
    stands: dict[int, Moved] = {}
    thawed: dict[str, int] = {}
    for record in history.records:
        match record:
            case Registered(owner=owner):
                who[owner] = record.who
            case Moved(key=key):
                stands[key] = record
            case Fault(at=at, what="resume"):
                thawed[record.who] = at
            case Ran(at=at, id=job, end=""):
                move = stands.get(key_of(job))
                if move is None:
                    continue
                mine = move.target is JobStatus.RUNNING and who.get(move.owner or -1) == record.who
                if not mine and at - thawed.get(record.who, -_THAWED_US) >= _THAWED_US:
                    yield Violation(
                        "start",
                        move.key,
                        f"job {move.key} ({job}) started on {record.who} at {at} while it was "
                        f"{move.target} of process {move.owner} since {move.at} ({move.event})",
                    )
            case _:
                pass


def every_run_ended(history: History, final: Final) -> Found:
    """A handler that started has ended, or its process is gone."""
    for job, runs in _runs(history).items():
        for run in runs:
            if run.end is None:
                yield Violation(
                    "unended", key_of(job), f"{job} still runs on {run.who} since {run.start}"
                )


def _runs(history: History) -> dict[str, list[_Run]]:
    runs: dict[str, list[_Run]] = {}
    open_runs: dict[int, _Run] = {}
    for record in history.records:
        match record:
            case Ran(at=at, run=number, id=job, end=""):
                run = _Run(record.who, at)
                runs.setdefault(job, []).append(run)
                open_runs[number] = run
            case Ran(at=at, run=number):
                ended = open_runs.pop(number, None)
                if ended is not None:
                    ended.end = at
            case Fault(at=at, what=what) if what in ENDS_A_PROCESS:
                for number, run in list(open_runs.items()):
                    if run.who == record.who:
                        run.end = at
                        del open_runs[number]
            case _:
                pass
    return runs
