"""The checkers of steps, waits and events: each reads the history alone."""

from collections import defaultdict
from collections.abc import Iterator

from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind, shown_step
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import (
    IN_TRANSACTION,
    Claimed,
    EffectCommitted,
    EventStored,
    Fault,
    HandlerRan,
    History,
    Record,
    StepRan,
    StepsDeleted,
    StepSeen,
    StepStored,
    Transitioned,
    WaitDeleted,
    WaitStored,
    key_of,
)
from rigs.simulation.run_checkers import EXIT_FAULTS

# The memory store delivers an event in the transaction that stores it.
_DELIVERED_US = 1_000_000
_DECIDED = (StepKind.EVENT, StepKind.TIMEOUT)


class _Histories:
    """The stored steps of all jobs at one point of the history, with the place of their record."""

    def __init__(self) -> None:
        self._stored: defaultdict[int, dict[str, tuple[int, StepStored]]] = defaultdict(dict)

    def find(self, key: int, name: str) -> tuple[int, StepStored] | None:
        """A stored step and the place of its record."""
        return self._stored[key].get(name)

    def apply(self, place: int, record: Record) -> None:
        """Apply one record; the first write of a name stays."""
        match record:
            case StepStored(key=key, name=name):
                self._stored[key].setdefault(name, (place, record))
            case StepsDeleted(key=key, names=names):
                for name in names:
                    self._stored[key].pop(name, None)
            case Transitioned(key=key, target=None):
                self._stored.pop(key, None)
            case _:
                pass


def stored_steps_stay(history: History, final: FinalState) -> Found:
    """A stored name is not written again, a step is stored only by a run that holds its job, and
    handlers are given what was stored.

    A wait is therefore decided once: by an event or by its deadline, and every run is given the
    same.
    """
    histories = _Histories()
    values: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for place, record in enumerate(history.effects):
        if isinstance(record, StepStored):
            yield from _written(record, histories)
            values[record.key, record.name].add(_shown_value(record))
        elif isinstance(record, StepSeen):
            key = key_of(record.id)
            if str(record.value) not in values[key, record.name]:
                yield Violation(
                    "given",
                    key,
                    f"{shown_step(record.name)} of job {key} was given as {record.value} at "
                    f"{record.at}; stored were {sorted(values[key, record.name])}",
                )
        histories.apply(place, record)


def _written(record: StepStored, histories: _Histories) -> Found:
    what = f"{shown_step(record.name)} of job {record.key}"
    known = histories.find(record.key, record.name)
    if known is not None:
        both = {record.kind, known[1].kind} == set(_DECIDED)
        yield Violation(
            "decided" if both else "rewritten",
            record.key,
            f"{what} was stored at {known[1].at} as {known[1].kind} {known[1].value}, and at "
            f"{record.at} as {record.kind} {record.value}",
        )
    holds = record.status in (JobStatus.RUNNING, JobStatus.SUSPENDED)
    if not holds or record.epoch != record.held_epoch:
        yield Violation(
            "step fence",
            record.key,
            f"{what} was stored at {record.at} by epoch {record.epoch}, while the job was "
            f"{record.status} under epoch {record.held_epoch}",
        )


def _shown_value(record: StepStored) -> str:
    """The number that a handler is given for this step."""
    match record.kind:
        case StepKind.TIMEOUT:
            return "-1"
        case StepKind.EVENT:
            return record.value.rpartition('"payload":')[2].rstrip("}")
        case StepKind.ERROR:
            return record.value.partition('"message":"')[2].partition('"')[0]
        case _:
            return record.value


def effects_not_repeated(history: History, final: FinalState) -> Found:
    """The function of a step does not run in a run whose claim was given after its value had been
    stored."""
    histories = _Histories()
    claimed: dict[tuple[str, int], int] = {}
    claim_of_run: dict[int, int] = {}
    for place, record in enumerate(history.effects):
        match record:
            case Claimed(who=who, key=key):
                claimed[who, key] = place
            case HandlerRan(who=who, run=run, id=job, end=""):
                claim_of_run[run] = claimed.get((who, key_of(job)), -1)
            case StepRan(run=run, id=job, name=name):
                stored = histories.find(key_of(job), name)
                if stored is not None and stored[0] < claim_of_run.get(run, -1):
                    yield Violation(
                        "repeated",
                        key_of(job),
                        f"{shown_step(name)} of {job} ran again at {record.at}; its value was "
                        f"stored at {stored[1].at}, before the claim of this run",
                    )
            case _:
                pass
        histories.apply(place, record)


def transactions_whole(history: History, final: FinalState) -> Found:
    """The effect of a step in a user's transaction is committed at the instant at which the step is
    stored, and no handler goes on with one that was not."""
    histories = _Histories()
    committed: set[tuple[str, str, int]] = set()
    for place, record in enumerate(history.effects):
        histories.apply(place, record)
        match record:
            case EffectCommitted(at=at, id=job, name=name, value=value):
                stored = histories.find(key_of(job), name)
                committed.add((job, name, value))
                if stored is None or (stored[1].at, stored[1].value) != (at, str(value)):
                    yield Violation(
                        "committed",
                        key_of(job),
                        f"the effect {value} of {shown_step(name)} of {job} was committed at {at} "
                        f"without its step; stored is {None if stored is None else stored[1]}",
                    )
            case StepSeen(at=at, id=job, name=name, value=value):
                if name.startswith(IN_TRANSACTION) and (job, name, value) not in committed:
                    yield Violation(
                        "committed",
                        key_of(job),
                        f"{shown_step(name)} of {job} was given as {value} at {at}, and its effect "
                        "was never committed",
                    )
            case _:
                pass


def events_taken_in_order(history: History, final: FinalState) -> Found:
    """A job takes each event once, and those of a topic in their order. A retry from a step gives
    back what the deleted steps took."""
    taken: defaultdict[int, dict[str, StepStored]] = defaultdict(dict)
    carried: defaultdict[tuple[int, str], int] = defaultdict(int)
    for record in history.effects:
        match record:
            case StepStored(kind=StepKind.EVENT, key=key, name=name, topic=topic, seq=seq):
                last = max(
                    (step.seq for step in taken[key].values() if step.topic == topic), default=0
                )
                last = max(last, carried[key, topic])
                if seq <= last and name not in taken[key]:
                    yield Violation(
                        "taken",
                        key,
                        f"{name} of job {key} took event {seq} of {topic!r} at {record.at}, after "
                        f"event {last}",
                    )
                taken[key][name] = record
            case StepsDeleted(key=key, names=names, by_retry=by_retry):
                for name in names:
                    step = taken[key].pop(name, None)
                    if step is not None and not by_retry:
                        at = (key, step.topic)
                        carried[at] = max(carried[at], step.seq)
                if by_retry and any(name.startswith("#") for name in names):
                    _forget_cursors(carried, key, names)
            case _:
                pass


def _forget_cursors(
    carried: defaultdict[tuple[int, str], int], key: int, names: tuple[str, ...]
) -> None:
    for name in names:
        carried.pop((key, name.removeprefix("#")), None)


def waits_end(history: History, final: FinalState) -> Found:
    """No job waits on while an event is there that it would take (a lost wake-up)."""
    events: defaultdict[str, list[EventStored]] = defaultdict(list)
    open_waits: dict[int, WaitStored] = {}
    due: dict[int, tuple[int, EventStored]] = {}
    last_at = history.records[-1].at if history.records else 0
    for record in history.effects:
        match record:
            case WaitStored(key=key):
                open_waits[key] = record
                found = next(_matching(record, events), None)
                if found is not None:
                    due[key] = (record.at, found)
            case EventStored(topic=topic):
                events[topic].append(record)
                for key, wait in open_waits.items():
                    if key not in due and any(_matching(wait, {topic: [record]})):
                        due[key] = (record.at, record)
            case WaitDeleted(key=key):
                yield from _overslept(key, open_waits.pop(key, None), due, record.at)
                due.pop(key, None)
            case Transitioned(key=key, target=None):
                open_waits.pop(key, None)
                due.pop(key, None)
            case _:
                pass
    for key, wait in open_waits.items():
        yield from _overslept(key, wait, due, last_at)


def _matching(
    wait: WaitStored, events: "defaultdict[str, list[EventStored]] | dict[str, list[EventStored]]"
) -> Iterator[EventStored]:
    for topic, after, since in wait.topics:
        for event in events.get(topic, ()):
            if event.seq > after and event.sent_at >= since:
                yield event


def _overslept(
    key: int, wait: WaitStored | None, due: dict[int, tuple[int, EventStored]], at: int
) -> Found:
    if wait is not None and key in due and at - due[key][0] > _DELIVERED_US:
        since, event = due[key]
        yield Violation(
            "asleep",
            key,
            f"job {key} waited for {wait.step} until {at}, although event {event.seq} of "
            f"{event.topic!r} was there since {since}",
        )


def parked_jobs_hold_nothing(history: History, final: FinalState) -> Found:
    """No handler of a job runs any more in the process that ended its run with a sleep or a wait,
    so that its slot is free."""
    open_runs: dict[int, tuple[str, int]] = {}
    for record in history.effects:
        match record:
            case HandlerRan(who=who, run=run, id=job, end=""):
                open_runs[run] = (who, key_of(job))
            case HandlerRan(run=run):
                open_runs.pop(run, None)
            case Fault(who=who, what=what) if what in EXIT_FAULTS:
                open_runs = {run: one for run, one in open_runs.items() if one[0] != who}
            case Transitioned(who=who, key=key, event=Event.SUSPEND | Event.SNOOZE):
                if (who, key) in open_runs.values():
                    yield Violation(
                        "parked", key, f"job {key} is {record.target} and runs on {who} still"
                    )
            case _:
                pass


def attempts_returned_for_progress(history: History, final: FinalState) -> Found:
    """A failed run gives its attempt back only if it stored a step, and never the only one."""
    epochs: dict[int, int] = {}
    attempts: dict[int, int] = {}
    progress: set[tuple[int, int]] = set()
    for record in history.effects:
        match record:
            case StepStored(key=key, epoch=epoch, kind=kind):
                if kind is not StepKind.CURSOR:
                    progress.add((key, epoch))
            case Transitioned(key=key, event=event):
                back = record.attempts < attempts.get(key, 0)
                if event is Event.FAIL and back:
                    row = final.rows.get(key)
                    only = row is not None and row.max_attempts == 1
                    if only or (key, epochs.get(key, -1)) not in progress:
                        yield Violation(
                            "progress",
                            key,
                            f"job {key} got an attempt back at {record.at} without progress",
                        )
                epochs[key] = record.epoch
                attempts[key] = record.attempts
            case _:
                pass
