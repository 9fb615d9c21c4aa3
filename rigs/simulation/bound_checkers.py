"""The checkers of limits and lanes: how many jobs run at once, their start rate and their order.

They read only the transitions of rows. Invariants that hold between transactions are checked when
virtual time advances: within a transaction a job may pass through a state.
"""

from collections import defaultdict
from collections.abc import Iterator

from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import limit_of, task_limit
from forge_jobs.core.status import TERMINAL, Event, JobStatus
from rigs.simulation.bound import BURST, LIMITS, RATE_PER_S
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import Bound, History, LimitChanged, Transitioned

_ACTIVE = (JobStatus.PENDING, JobStatus.RUNNING)
_HELD = JobStatus.HELD
# Whole microseconds are rounded, and the rate is not.
_SLACK = 0.001


class _Group:
    """The non-terminal jobs of one key, task or lane, by state."""

    def __init__(self) -> None:
        self.states: dict[int, JobStatus] = {}
        self.active: set[int] = set()

    def put(self, key: int, state: JobStatus | None) -> None:
        if state is None or state in TERMINAL:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def count(self, *states: JobStatus) -> int:
        return sum(state in states for state in self.states.values())


class _LimitState:
    """The limits and the jobs they bind, at one point of the history."""

    def __init__(self) -> None:
        self.max_slots = {limit.name: limit.concurrency for limit in LIMITS}
        self.bound_jobs: dict[int, Bound] = {}
        self.groups: defaultdict[str, _Group] = defaultdict(_Group)
        self.touched: set[str] = set()

    def apply(self, transition: Transitioned) -> list[str]:
        """Apply one transition; returns the groups it concerns."""
        bound_job = self.bound_jobs.get(transition.key)
        if bound_job is None:
            return []
        lane = None if bound_job.lane is None else f"lane {bound_job.lane}"
        names = [
            name
            for name in (task_limit(bound_job.kind), bound_job.limit_key, lane)
            if name is not None
        ]
        for name in names:
            self.groups[name].put(transition.key, transition.target)
        self.touched.update(names)
        return names

    def max_running(self, name: str) -> int | None:
        """How many jobs of a group may run; None if the task is limited per key."""
        per_key = {limit.name for limit in LIMITS if limit.per is not None}
        return None if name in per_key else self.max_slots.get(limit_of(name))


def within_limits(history: History, final: FinalState) -> Found:
    """No claim exceeds the current limit of its task or key, or runs a second job of a lane; no job
    is held while its key or lane has room."""
    state, at = _LimitState(), 0
    for record in history.effects:
        if record.at != at:
            yield from _between_transactions(state, at)
            at = record.at
        match record:
            case Bound(key=key):
                state.bound_jobs[key] = record
            case LimitChanged(name=name, max_slots=max_slots):
                state.max_slots[name] = max_slots
            case Transitioned():
                names = state.apply(record)
                if record.event is Event.CLAIM:
                    yield from _claimed(state, record, names)
            case _:
                pass
    yield from _between_transactions(state, at)


def _claimed(state: _LimitState, transition: Transitioned, names: list[str]) -> Iterator[Violation]:
    for name in names:
        running = state.groups[name].count(JobStatus.RUNNING)
        max_slots = 1 if name.startswith("lane ") else state.max_running(name)
        if max_slots is not None and running > max_slots:
            yield Violation(
                "limit",
                transition.key,
                f"{running} jobs of {name} run at {transition.at}, {max_slots} may",
            )


def _between_transactions(state: _LimitState, at: int) -> Iterator[Violation]:
    """The invariants between transactions."""
    touched, state.touched = sorted(state.touched), set()
    for name in touched:
        group = state.groups[name]
        if name.startswith("lane "):
            yield from _lane(state, name, group, at)
        elif "/" in name:
            going, max_slots = group.count(*_ACTIVE), state.max_running(name)
            if group.count(_HELD) and (max_slots is None or going < max_slots):
                yield Violation(
                    "leak",
                    None,
                    f"{name}: a job is held at {at} although {going} of {max_slots} run",
                )


def _lane(state: _LimitState, name: str, group: _Group, at: int) -> Iterator[Violation]:
    active = {key for key, status in group.states.items() if status in _ACTIVE}
    fresh, group.active = active - group.active, active
    if len(active) > 1:
        yield Violation(
            "lane", max(active), f"{name}: {sorted(active)} are active together at {at}"
        )
    for key in fresh:
        for older in sorted(other for other in group.states if other < key):
            strict = state.bound_jobs[key].order == LaneOrder.STRICT
            if strict or group.states[older] is _HELD:
                yield Violation(
                    "order",
                    key,
                    f"{name}: {key} is active at {at} before {older}, which has not ended",
                )
    waiting = [key for key, status in group.states.items() if status is _HELD]
    if waiting and not active:
        first = min(waiting)
        strict = state.bound_jobs[first].order == LaneOrder.STRICT
        if not strict or first == min(group.states):
            yield Violation("leak", first, f"{name}: {first} is held at {at} and no job is active")


def within_rate(history: History, final: FinalState) -> Found:
    """In no span do more jobs of the rated task start than the rate and one burst allow."""
    rated = {record.key for record in history.of(Bound) if record.kind == "rated"}
    tokens, last = BURST, 0
    for transition in history.of(Transitioned):
        if transition.key not in rated or transition.event is not Event.CLAIM:
            continue
        tokens = min(BURST, tokens + (transition.at - last) / 1e6 * RATE_PER_S) - 1
        last = transition.at
        if tokens < -_SLACK:
            yield Violation(
                "rate", transition.key, f"start at {transition.at} is {-tokens:.3f} too early"
            )


def no_job_held_at_the_end(history: History, final: FinalState) -> Found:
    """At the end no job is held."""
    for row in final.rows.values():
        if row.status is JobStatus.HELD:
            yield Violation("starved", row.key, f"job {row.key} still waits in {row.limit_bucket}")
