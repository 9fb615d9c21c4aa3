"""The definition of a cron schedule: a record without behaviour, cheap to import."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

MISSED_LIMIT: Final = 100


class Missed(StrEnum):
    """What happens to ticks that passed while no process could fire them.

    *skip*: they are dropped. *once*: the last one fires. *all*: each fires, up to a limit.
    """

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """Whether a tick fires while the job of an earlier tick is live."""

    SKIP = "skip"
    ALLOW = "allow"


class CronSpec(Struct, frozen=True, kw_only=True):
    """The definition of a schedule. ``queue`` and ``max_attempts`` None: what the task declares.

    ``template`` is a NewJob as JSON: what the task declared when the schedule was stored. It counts
    where nothing is published for the kind.

    >>> nightly = CronSpec(name="nightly", expression="0 3 * * *", kind="report", zone="Asia/Tokyo")
    >>> nightly.missed.value
    'once'
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
