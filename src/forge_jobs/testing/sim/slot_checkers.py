"""The judges of slots: what was granted, and how many handlers of a queue ran at once."""

from collections import defaultdict

from forge_jobs.core.status import JobStatus

from .checkers import Found, Violation
from .final import Final
from .history import (
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
from .run_checkers import ENDS_A_PROCESS


class _Slots:
    """The state of shares and runs as the history unfolds."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.held: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._who: dict[int, str] = {}
        self._queue: dict[int, str] = {}
        self._stands: dict[int, Moved] = {}
        self._runs: dict[int, tuple[str, int]] = {}

    def take(self, record: Record) -> str | None:
        """Follow one record; the queue in which a handler started just now."""
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
                return self._queue.get(key_of(job))
            case Ran(run=run):
                self._runs.pop(run, None)
            case _:
                pass
        return None

    def granted(self, queue: str) -> int:
        """What the store holds for all processes together."""
        return sum(self.held[queue].values())

    def running(self, queue: str) -> int:
        """Handlers of that queue whose claim is still good."""
        return sum(
            self._queue.get(key) == queue and self._is_valid(who, key)
            for who, key in self._runs.values()
        )

    def _is_valid(self, who: str, key: int) -> bool:
        move = self._stands.get(key)
        return (
            move is not None
            and move.target is JobStatus.RUNNING
            and self._who.get(move.owner or -1) == who
        )


def within_slots(history: History, final: Final) -> Found:
    """What is held of a queue grows only within its slots, and never more handlers run than that.

    More may be held or run only after an operator took slots away, until their jobs have ended.
    Handlers of a claim that was taken away do not count: the process that runs them is fenced.
    """
    state = _Slots()
    for record in history.records:
        before = state.granted(record.queue) if isinstance(record, Shared) else 0
        started = state.take(record)
        if isinstance(record, Shared):
            held, total = state.granted(record.queue), state.totals.get(record.queue, 0)
            if held > max(before, total):
                yield Violation(
                    "granted",
                    None,
                    f"{held} of {total} slots of {record.queue} are held at {record.at}, "
                    f"{before} were before",
                )
        if started is not None and state.held[started]:
            running, held = state.running(started), state.granted(started)
            if running > held:
                yield Violation(
                    "slots",
                    None,
                    f"{running} handlers of {started} run at {record.at} on {held} slots",
                )
