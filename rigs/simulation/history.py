"""The history of a simulation: records that are equal when the same events happened again.

Times are virtual microseconds since the start. Three kinds of records are separate: what an actor
called and got back (``Called``, ``Answered``), what the store did (``Stored``, ``Transitioned``,
``Finished`` …, recorded at the instant of the effect), and what handlers did (``HandlerRan``).
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from forge_jobs.core import ids
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Verdict

R = TypeVar("R", bound="Record")

# How the steps in users' transactions are called.
IN_TRANSACTION = "tx"
# Which release of the application a node runs.
NEWER, OLDER = "newer release", "older release"


class CallResult(StrEnum):
    """How a call ended for its caller; ``unknown``: it may have had an effect."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Record(Struct, frozen=True):
    """One event; ``who`` is a node, the producer, an operator or the world."""

    at: int
    who: str


class Called(Record, frozen=True):
    """An actor sent a call to the store."""

    call: int
    op: str


class Answered(Record, frozen=True):
    """The actor got the reply to its call, or an error of the connection."""

    call: int
    op: str
    heard: CallResult
    note: str = ""


class Stored(Record, frozen=True):
    """The store inserted a new job, or returned the existing one. ``number``: the job's number in
    the workload."""

    key: int
    id: str
    duplicate: bool
    number: int | None = None


class Transitioned(Record, frozen=True):
    """A row changed its state. Values are those after the transition; ``former``: owner before."""

    key: int
    event: Event
    source: JobStatus | None
    target: JobStatus | None
    epoch: int
    attempts: int
    owner: int | None = None
    former: int | None = None


class Bound(Record, frozen=True):
    """A job that limits or lanes bind was stored: its task, key and lane."""

    key: int
    kind: str
    limit_key: str | None = None
    lane: str | None = None
    order: str = ""


class LimitChanged(Record, frozen=True):
    """So many jobs of a task, or of each of its keys, may run at once from now on."""

    name: str
    max_slots: int | None


class Claimed(Record, frozen=True):
    """A claim given to a worker process."""

    owner: int
    key: int
    epoch: int
    queue: str
    run_at: int
    now: int
    started: bool


class Finished(Record, frozen=True):
    """A finish and the store's verdict; ``carried`` is the number of successors."""

    owner: int
    key: int
    epoch: int
    status: JobStatus
    verdict: Verdict
    carried: int


class Registered(Record, frozen=True):
    """A worker process registered. ``replaced``: processes declared dead by the same call."""

    owner: int
    lease_us: int
    replaced: tuple[int, ...] = ()


class HeartbeatReceived(Record, frozen=True):
    """A heartbeat reached the store."""

    owner: int
    alive: bool


class Deregistered(Record, frozen=True):
    """A worker process deregistered."""

    owner: int


class Paused(Record, frozen=True):
    """A queue was paused or resumed."""

    queue: str
    paused: bool


class SlotsChanged(Record, frozen=True):
    """A queue has so many slots over the cluster from now on."""

    queue: str
    slots: int


class ShareChanged(Record, frozen=True):
    """A worker process may use so many slots of a queue; ``held`` are kept from the others."""

    owner: int
    queue: str
    slots: int
    held: int


class Acknowledged(Record, frozen=True):
    """The producer got the acknowledgement that its job is stored."""

    number: int
    id: str
    duplicate: bool


class HandlerRan(Record, frozen=True):
    """A handler began (``end`` empty) or ended, and how. ``run`` numbers the runs of the world."""

    run: int
    id: str
    end: str = ""


class StepRan(Record, frozen=True):
    """The function of a step had its effect, in the run with that number."""

    run: int
    id: str
    name: str
    value: int


class StepSeen(Record, frozen=True):
    """A handler was given the value of a step or wait."""

    run: int
    id: str
    name: str
    value: int


class EffectCommitted(Record, frozen=True):
    """The transaction that stores a step was committed, with the effect of the step's function."""

    run: int
    id: str
    name: str
    value: int


class StepStored(Record, frozen=True):
    """A step was stored. ``held_epoch`` and ``status`` are those of its job at that instant;
    ``topic`` and ``seq`` those of an event."""

    key: int
    name: str
    kind: StepKind
    epoch: int
    value: str
    status: JobStatus | None
    held_epoch: int
    topic: str = ""
    seq: int = 0


class StepsDeleted(Record, frozen=True):
    """Steps of a job were deleted: by a restart all, by a retry those that are named."""

    key: int
    names: tuple[str, ...]
    by_retry: bool


class StepRefused(Record, frozen=True):
    """A write of a step that was not applied."""

    owner: int
    key: int
    epoch: int
    name: str
    verdict: Verdict


class WaitStored(Record, frozen=True):
    """A job was suspended; ``topics`` with the number after which, and the store's instant since
    which an event counts."""

    key: int
    step: str
    topics: tuple[tuple[str, int, int], ...]


class WaitDeleted(Record, frozen=True):
    """A job waits no longer."""

    key: int


class EventStored(Record, frozen=True):
    """An event was sent at this instant of the store."""

    seq: int
    topic: str
    sent_at: int


class Fault(Record, frozen=True):
    """An injected fault or operator action: a crash, a stall, a pause, a jump of a clock."""

    what: str
    note: str = ""


class History:
    """The records in order. Sealed at the end, so that the cleanup is not recorded.

    ``effects``: the records without those of calls, which are most of them and which few checkers
    read.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Record] = []
        self._by_kind: dict[type[Record], list[Any]] = {}
        self._sealed = False

    def add(self, record: Record) -> None:
        """Append, unless sealed."""
        if self._sealed:
            return
        self.records.append(record)
        kind = type(record)
        self._by_kind.setdefault(kind, []).append(record)
        if kind is not Called and kind is not Answered:
            self.effects.append(record)

    def seal(self) -> None:
        """Ignore all further records."""
        self._sealed = True

    def of(self, kind: type[R]) -> Iterator[R]:
        """The records of one kind, in order."""
        return iter(self._by_kind.get(kind, ()))

    def lines(self, last: int | None = None) -> list[str]:
        """The trace as text, or its last lines."""
        chosen = self.records if last is None else self.records[-last:]
        return [format_record(record) for record in chosen]


@lru_cache(maxsize=10_000)
def key_of(public_id: str) -> int:
    """The key of the row with a public id, also of a deleted job; -1 for an invalid id."""
    number = ids.decode(public_id)
    return -1 if number is None else number >> 16 & 0xFFFF_FFFF_FFFF_FFFF


def format_record(record: Record) -> str:
    """One record as text: time in seconds, actor, kind, and its other fields."""
    fields = [
        f"{name}={_plain(getattr(record, name))}"
        for name in record.__struct_fields__
        if name not in ("at", "who") and getattr(record, name) not in (None, "")
    ]
    return (
        f"{record.at / 1e6:12.6f}  {record.who:<10} {type(record).__name__:<10} {' '.join(fields)}"
    )


def _plain(value: object) -> str:
    return value.value if isinstance(value, StrEnum) else str(value)
