"""Counting: what each writing transaction adds to the books."""

from msgspec import Struct

from .instant import Instant
from .status import JobStatus


class Count(Struct, frozen=True):
    """How many jobs of a queue are in a state."""

    queue: str
    status: JobStatus
    jobs: int


class Minute(Struct, frozen=True, kw_only=True):
    """What happened to jobs of one queue and kind within one minute (``at`` is its start)."""

    at: Instant
    queue: str
    kind: str
    enqueued: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    ran_s: float = 0.0


class CappedCount(Struct, frozen=True):
    """A count that stops at its cap: ``more`` says that there are more."""

    jobs: int
    more: bool = False
