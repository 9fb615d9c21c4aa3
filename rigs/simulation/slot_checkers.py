"""The checkers of slots: what was granted, and how many handlers of a queue ran at once."""

from collections import Counter, defaultdict

from forge_jobs.core.status import JobStatus
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import (
    Claimed,
    Fault,
    HandlerRan,
    History,
    Record,
    Registered,
    ShareChanged,
    SlotsChanged,
    Transitioned,
    key_of,
)
from rigs.simulation.run_checkers import EXIT_FAULTS


class _Slots:
    """The slot shares and running handlers at one point of the history."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.held: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._who: dict[int, str] = {}
        self._queue: dict[int, str] = {}
        self._last_transition: dict[int, Transitioned] = {}
        self._runs: dict[int, tuple[str, int]] = {}

    def apply(self, record: Record) -> int | None:
        """Apply one record; returns the key of the job whose handler it started."""
        match record:
            case Registered(owner=owner):
                self._who[owner] = record.who
            case SlotsChanged(queue=queue, slots=slots):
                self.totals[queue] = slots
            case ShareChanged(queue=queue, owner=owner, held=held):
                self.held[queue][owner] = held
            case Claimed(key=key, queue=queue):
                self._queue[key] = queue
            case Transitioned(key=key):
                self._last_transition[key] = record
            case Fault(what=what) if what in EXIT_FAULTS:
                for run, (who, _) in list(self._runs.items()):
                    if who == record.who:
                        del self._runs[run]
            case HandlerRan(run=run, id=job, end=""):
                self._runs[run] = (record.who, key_of(job))
                return key_of(job)
            case HandlerRan(run=run):
                self._runs.pop(run, None)
            case _:
                pass
        return None

    def granted(self, queue: str) -> int:
        """The slots held for all processes together."""
        return sum(self.held[queue].values())

    def queue_of(self, key: int) -> str:
        """The queue a job was claimed from."""
        return self._queue.get(key, "")

    def running(self, queue: str) -> Counter[int]:
        """Running handlers of that queue with a valid claim, by owner."""
        owners = (
            self._owner(who, key)
            for who, key in self._runs.values()
            if self._queue.get(key) == queue
        )
        return Counter(owner for owner in owners if owner is not None)

    def _owner(self, who: str, key: int) -> int | None:
        """The owner of a job's claim if that is the process which runs it."""
        transition = self._last_transition.get(key)
        if (
            transition is None
            or transition.owner is None
            or transition.target is not JobStatus.RUNNING
        ):
            return None
        return transition.owner if self._who.get(transition.owner) == who else None


def within_slots(history: History, final: FinalState) -> Found:
    """The held slots of a queue grow only within its slots, and no process runs more handlers than
    the slots held for it.

    More may be held or run only after an operator reduced the slots, until those jobs have ended.
    Handlers of a lost claim do not count: the process that runs them is fenced.
    """
    state = _Slots()
    for record in history.effects:
        before = state.granted(record.queue) if isinstance(record, ShareChanged) else 0
        started = state.apply(record)
        if isinstance(record, ShareChanged):
            yield from _granted(state, record, before)
        if started is not None:
            yield from _started(state, record.at, state.queue_of(started))


def _granted(state: _Slots, record: ShareChanged, before: int) -> Found:
    queue = record.queue
    held, total = state.granted(queue), state.totals.get(queue, 0)
    if held > max(before, total):
        yield Violation(
            "granted",
            None,
            f"{held} of {total} slots of {queue} are held at {record.at}, {before} were before",
        )


def _started(state: _Slots, at: int, queue: str) -> Found:
    shares = state.held[queue]
    if not shares:
        return
    running = state.running(queue)
    if running.total() > state.granted(queue):
        yield Violation(
            "slots",
            None,
            f"{running.total()} handlers of {queue} run at {at} on {state.granted(queue)} slots",
        )
    for owner, count in running.items():
        held = shares.get(owner, 0)
        if count > held:
            yield Violation(
                "slots",
                None,
                f"{count} handlers of {queue} run at {at} in process {owner}, which holds {held}",
            )
