"""What happened in a simulated world, as records that compare equal when the same happened again.

Times are virtual microseconds since the world began. Three kinds of truth are kept apart: what an
actor asked for and heard (``Called``, ``Answered``), what the store really did (``Stored``,
``Moved``, ``Finished`` …, written at the instant of the effect), and what handlers did (``Ran``).
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from forge_jobs.core import ids
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Verdict

R = TypeVar("R", bound="Record")


class Heard(StrEnum):
    """How a call ended for its caller; ``unknown`` means that an effect is possible."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Record(Struct, frozen=True):
    """One thing that happened; ``who`` is a node, the producer, the operator or the chaos."""

    at: int
    who: str


class Called(Record, frozen=True):
    """An actor sent a call to the store."""

    call: int
    op: str


class Answered(Record, frozen=True):
    """The actor heard the end of its call, or the line told it that something went wrong."""

    call: int
    op: str
    heard: Heard
    note: str = ""


class Stored(Record, frozen=True):
    """The store took a new job in, or answered with the existing one. ``number`` is the workload's
    own."""

    key: int
    id: str
    duplicate: bool
    number: int | None = None


class Moved(Record, frozen=True):
    """A row changed its state. The numbers are those after the move; ``former`` owned it before."""

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


class Limited(Record, frozen=True):
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
    """A finish the store judged; ``carried`` is how many jobs came with it."""

    owner: int
    key: int
    epoch: int
    status: JobStatus
    verdict: Verdict
    carried: int


class Registered(Record, frozen=True):
    """A worker process was let in. ``replaced`` are those declared dead by the same call."""

    owner: int
    lease_us: int
    replaced: tuple[int, ...] = ()


class Beaten(Record, frozen=True):
    """A heartbeat reached the store."""

    owner: int
    alive: bool


class Left(Record, frozen=True):
    """A worker process went in good order."""

    owner: int


class Paused(Record, frozen=True):
    """A queue was paused or opened again."""

    queue: str
    paused: bool


class Slotted(Record, frozen=True):
    """A queue has so many slots over the cluster from now on."""

    queue: str
    slots: int


class Shared(Record, frozen=True):
    """A worker process may use so many slots of a queue; ``held`` are kept from the others."""

    owner: int
    queue: str
    slots: int
    held: int


class Acked(Record, frozen=True):
    """The producer was told that its job is stored."""

    number: int
    id: str
    duplicate: bool


class Ran(Record, frozen=True):
    """A handler began (``end`` empty) or ended, and how. ``run`` numbers the runs of the world."""

    run: int
    id: str
    end: str = ""


class Fault(Record, frozen=True):
    """Something was done to the world: a crash, a stall, a pause, a jump of a clock."""

    what: str
    note: str = ""


class History:
    """The records in order. Sealed at the end, so that clearing up leaves no trace."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._sealed = False

    def add(self, record: Record) -> None:
        """Append, unless the world has ended."""
        if not self._sealed:
            self.records.append(record)

    def seal(self) -> None:
        """Nothing that happens from now on belongs to the history."""
        self._sealed = True

    def of(self, kind: type[R]) -> Iterator[R]:
        """The records of one kind, in order."""
        return (record for record in self.records if isinstance(record, kind))

    def lines(self, last: int | None = None) -> list[str]:
        """The trace for people, or its end."""
        chosen = self.records if last is None else self.records[-last:]
        return [line(record) for record in chosen]


def key_of(public_id: str) -> int:
    """The row behind a public id, also of a job that was deleted; -1 when it is no id."""
    number = ids.decode(public_id)
    return -1 if number is None else number >> 16 & 0xFFFF_FFFF_FFFF_FFFF


def line(record: Record) -> str:
    """One record as text: time in seconds, actor, kind, and whatever else it says."""
    told = [
        f"{name}={_plain(getattr(record, name))}"
        for name in record.__struct_fields__
        if name not in ("at", "who") and getattr(record, name) not in (None, "")
    ]
    return f"{record.at / 1e6:12.6f}  {record.who:<10} {type(record).__name__:<10} {' '.join(told)}"


def _plain(value: object) -> str:
    return value.value if isinstance(value, StrEnum) else str(value)
