"""The judges of limits and lanes: how many run at once, how often they start, and in what order.

They read the moves of rows alone. What holds only when a transaction is complete is looked at when
virtual time goes on: until then a job may be on its way through a state.
"""

from collections import defaultdict
from collections.abc import Iterator

from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import limit_of, task_limit
from forge_jobs.core.status import TERMINAL, Event, JobStatus
from rigs.simulation.bound import BURST, LIMITS, RATE_PER_S
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import Final
from rigs.simulation.history import Bound, History, Limited, Moved

_GOING = (JobStatus.PENDING, JobStatus.RUNNING)
_HELD = JobStatus.HELD
# Whole microseconds are rounded, and the rate is not.
_SLACK = 0.001


class _Group:
    """The jobs of one key, task or lane that are not over, by state."""

    def __init__(self) -> None:
        self.states: dict[int, JobStatus] = {}
        self.seated: set[int] = set()

    def put(self, key: int, state: JobStatus | None) -> None:
        if state is None or state in TERMINAL:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def count(self, *states: JobStatus) -> int:
        return sum(state in states for state in self.states.values())


class _Bounds:
    """What is bound by what, as the history unfolds."""

    def __init__(self) -> None:
        self.max_slots = {limit.name: limit.concurrency for limit in LIMITS}
        self.bonds: dict[int, Bound] = {}
        self.groups: defaultdict[str, _Group] = defaultdict(_Group)
        self.touched: set[str] = set()

    def take(self, move: Moved) -> list[str]:
        """Follow one move; the groups it concerns."""
        bond = self.bonds.get(move.key)
        if bond is None:
            return []
        lane = None if bond.lane is None else f"lane {bond.lane}"
        names = [name for name in (task_limit(bond.kind), bond.limit_key, lane) if name is not None]
        for name in names:
            self.groups[name].put(move.key, move.target)
        self.touched.update(names)
        return names

    def most_of(self, name: str) -> int | None:
        """How many of a group may run; of a task that is limited per key any number."""
        per_key = {limit.name for limit in LIMITS if limit.per is not None}
        return None if name in per_key else self.max_slots.get(limit_of(name))


def within_limits(history: History, final: Final) -> Found:
    """No claim makes more jobs of a task or key run than its present limit says, and of a lane
    never more than one; no job waits for its key or lane while there is room."""
    state, at = _Bounds(), 0
    for record in history.records:
        if record.at != at:
            yield from _settled(state, at)
            at = record.at
        match record:
            case Bound(key=key):
                state.bonds[key] = record
            case Limited(name=name, max_slots=max_slots):
                state.max_slots[name] = max_slots
            case Moved():
                names = state.take(record)
                if record.event is Event.CLAIM:
                    yield from _claimed(state, record, names)
            case _:
                pass


def _claimed(state: _Bounds, move: Moved, names: list[str]) -> Iterator[Violation]:
    for name in names:
        running = state.groups[name].count(JobStatus.RUNNING)
        max_slots = 1 if name.startswith("lane ") else state.most_of(name)
        if max_slots is not None and running > max_slots:
            yield Violation(
                "limit", move.key, f"{running} jobs of {name} run at {move.at}, {max_slots} may"
            )


def _settled(state: _Bounds, at: int) -> Iterator[Violation]:
    """What must hold between transactions."""
    touched, state.touched = sorted(state.touched), set()
    for name in touched:
        group = state.groups[name]
        if name.startswith("lane "):
            yield from _lane(state, name, group, at)
        elif "/" in name:
            going, max_slots = group.count(*_GOING), state.most_of(name)
            if group.count(_HELD) and (max_slots is None or going < max_slots):
                yield Violation(
                    "leak",
                    None,
                    f"{name}: somebody waits at {at} although {going} of {max_slots} run",
                )


def _lane(state: _Bounds, name: str, group: _Group, at: int) -> Iterator[Violation]:
    seated = {key for key, status in group.states.items() if status in _GOING}
    fresh, group.seated = seated - group.seated, seated
    if len(seated) > 1:
        yield Violation("lane", max(seated), f"{name}: {sorted(seated)} go on together at {at}")
    for key in fresh:
        for older in sorted(other for other in group.states if other < key):
            strict = state.bonds[key].order == LaneOrder.STRICT
            if strict or group.states[older] is _HELD:
                yield Violation(
                    "order",
                    key,
                    f"{name}: {key} goes on at {at} before {older}, which has not ended",
                )
    waiting = [key for key, status in group.states.items() if status is _HELD]
    if waiting and not seated:
        first = min(waiting)
        strict = state.bonds[first].order == LaneOrder.STRICT
        if not strict or first == min(group.states):
            yield Violation("leak", first, f"{name}: {first} waits at {at} and nobody goes on")


def within_rate(history: History, final: Final) -> Found:
    """In no span do more jobs of the rated task start than the rate and one burst allow."""
    rated = {record.key for record in history.of(Bound) if record.kind == "rated"}
    tokens, last = BURST, 0
    for move in history.of(Moved):
        if move.key not in rated or move.event is not Event.CLAIM:
            continue
        tokens = min(BURST, tokens + (move.at - last) / 1e6 * RATE_PER_S) - 1
        last = move.at
        if tokens < -_SLACK:
            yield Violation("rate", move.key, f"start at {move.at} is {-tokens:.3f} too early")


def none_is_left(history: History, final: Final) -> Found:
    """At the end nobody waits for room."""
    for row in final.rows.values():
        if row.status is JobStatus.HELD:
            yield Violation("starved", row.key, f"job {row.key} still waits in {row.limit_bucket}")
