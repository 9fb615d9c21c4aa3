"""The judges of slots: what was granted, and how many handlers of a queue ran at once."""

from collections import Counter, defaultdict

from forge_jobs.core.status import JobStatus
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import Final
from rigs.simulation.history import (
    Claimed,
    Fault,
    History,
    Moved,
    Ran,
    Record,
    Registered,
    Shared,
    Slotted,
    key_of,
)
from rigs.simulation.run_checkers import ENDS_A_PROCESS


class _Slots:
    """The state of shares and runs as the history unfolds."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.held: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._who: dict[int, str] = {}
        self._queue: dict[int, str] = {}
        self._stands: dict[int, Moved] = {}
        self._runs: dict[int, tuple[str, int]] = {}

    def take(self, record: Record) -> int | None:
        """Follow one record; the key of the job whose handler started just now."""
        match record:
            case Registered(owner=owner):
                self._who[owner] = record.who
            case Slotted(queue=queue, slots=slots):
                self.totals[queue] = slots
            case Shared(queue=queue, owner=owner, held=held):
                self.held[queue][owner] = held
            case Claimed(key=key, queue=queue):
                self._queue[key] = queue
            case Moved(key=key):
                self._stands[key] = record
            case Fault(what=what) if what in ENDS_A_PROCESS:
                for run, (who, _) in list(self._runs.items()):
                    if who == record.who:
                        del self._runs[run]
            case Ran(run=run, id=job, end=""):
                self._runs[run] = (record.who, key_of(job))
                return key_of(job)
            case Ran(run=run):
                self._runs.pop(run, None)
            case _:
                pass
        return None

    def granted(self, queue: str) -> int:
        """What the store holds for all processes together."""
        return sum(self.held[queue].values())

    def queue_of(self, key: int) -> str:
        """The queue a job was claimed from."""
        return self._queue.get(key, "")

    def running(self, queue: str) -> Counter[int]:
        """Handlers of that queue whose claim is still good, by the process that owns them."""
        owners = (
            self._owner(who, key)
            for who, key in self._runs.values()
            if self._queue.get(key) == queue
        )
        return Counter(owner for owner in owners if owner is not None)

    def _owner(self, who: str, key: int) -> int | None:
        """The owner of a job's claim if that is the process which runs it."""
        move = self._stands.get(key)
        if move is None or move.owner is None or move.target is not JobStatus.RUNNING:
            return None
        return move.owner if self._who.get(move.owner) == who else None


def within_slots(history: History, final: Final) -> Found:
    """What is held of a queue grows only within its slots, and no process runs more of its handlers
    than are held for it.

    More may be held or run only after an operator took slots away, until their jobs have ended.
    Handlers of a claim that was taken away do not count: the process that runs them is fenced.
    """
    state = _Slots()
    for record in history.records:
        before = state.granted(record.queue) if isinstance(record, Shared) else 0
        started = state.take(record)
        if isinstance(record, Shared):
            yield from _granted(state, record, before)
        if started is not None:
            yield from _started(state, record.at, state.queue_of(started))


def _granted(state: _Slots, record: Shared, before: int) -> Found:
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
