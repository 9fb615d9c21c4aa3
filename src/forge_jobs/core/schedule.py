"""What people decide about a schedule: a record without behaviour, cheap to import."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

MISSED_LIMIT: Final = 100


class Missed(StrEnum):
    """What becomes of ticks that came while nobody could fire them."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """Whether a tick fires while the job of an earlier one is not over."""

    SKIP = "skip"
    ALLOW = "allow"


class CronSpec(Struct, frozen=True, kw_only=True):
    """Everything people decide about a schedule. ``queue`` None: the queue of the kind.

    ``template`` is a NewJob as JSON: what the task gives its jobs beside what stands here.
    """

    name: str
    expression: str
    kind: str
    queue: str | None = None
    payload: bytes = b"{}"
    zone: str = "UTC"
    missed: str = Missed.ONCE
    missed_limit: int = MISSED_LIMIT
    overlap: str = Overlap.SKIP
    jitter_s: float = 0.0
    max_attempts: int | None = None
    template: bytes = b"{}"
