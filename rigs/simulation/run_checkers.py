"""The checkers of handlers: when they started, and whether two ran the same job at once."""

from dataclasses import dataclass

from forge_jobs.core.status import Event, JobStatus
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import Fault, HandlerRan, History, Registered, Transitioned, key_of

EXIT_FAULTS = ("crash", "exit")
FREEZE_FAULTS = ("stall", "stop")
# A process that is stopped between its lease check and the first step of a handler cannot notice.
_RESUME_SLACK_US = 50_000


@dataclass(slots=True)
class _Run:
    who: str
    start: int
    end: int | None = None


def overlapping_runs(history: History, final: FinalState) -> Found:
    """Two runs of one job overlap only if the first run's claim was reaped."""
    who = {record.owner: record.who for record in history.of(Registered)}
    taken: dict[int, list[tuple[int, str]]] = {}
    for transition in history.of(Transitioned):
        if transition.event is Event.REAP and transition.former is not None:
            taken.setdefault(transition.key, []).append(
                (transition.at, who.get(transition.former, "?"))
            )
    for job, runs in _runs(history).items():
        losses = taken.get(key_of(job), [])
        for index, first in enumerate(runs):
            for second in runs[index + 1 :]:
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


def starts_allowed(history: History, final: FinalState) -> Found:
    """A handler starts only while the store holds its job as running in this process.

    So a job that was cancelled while it waited never starts, nor one whose claim a stopped process
    has lost.
    """
    who: dict[int, str] = {}
    last_transition: dict[int, Transitioned] = {}
    resumed_at: dict[str, int] = {}
    for record in history.effects:
        match record:
            case Registered(owner=owner):
                who[owner] = record.who
            case Transitioned(key=key):
                last_transition[key] = record
            case Fault(at=at, what="resume"):
                resumed_at[record.who] = at
            case HandlerRan(at=at, id=job, end=""):
                transition = last_transition.get(key_of(job))
                if transition is None:
                    continue
                mine = (
                    transition.target is JobStatus.RUNNING
                    and who.get(transition.owner or -1) == record.who
                )
                if (
                    not mine
                    and at - resumed_at.get(record.who, -_RESUME_SLACK_US) >= _RESUME_SLACK_US
                ):
                    yield Violation(
                        "start",
                        transition.key,
                        f"job {transition.key} ({job}) started on {record.who} at {at} while it "
                        f"was {transition.target} of process {transition.owner} since "
                        f"{transition.at} ({transition.event})",
                    )
            case _:
                pass


def every_run_finished(history: History, final: FinalState) -> Found:
    """Every handler that started has ended, or its process has."""
    for job, runs in _runs(history).items():
        for run in runs:
            if run.end is None:
                yield Violation(
                    "unended", key_of(job), f"{job} still runs on {run.who} since {run.start}"
                )


def _runs(history: History) -> dict[str, list[_Run]]:
    runs: dict[str, list[_Run]] = {}
    open_runs: dict[int, _Run] = {}
    for record in history.effects:
        match record:
            case HandlerRan(at=at, run=number, id=job, end=""):
                run = _Run(record.who, at)
                runs.setdefault(job, []).append(run)
                open_runs[number] = run
            case HandlerRan(at=at, run=number):
                ended = open_runs.pop(number, None)
                if ended is not None:
                    ended.end = at
            case Fault(at=at, what=what) if what in EXIT_FAULTS:
                for number, run in list(open_runs.items()):
                    if run.who == record.who:
                        run.end = at
                        del open_runs[number]
            case _:
                pass
    return runs
