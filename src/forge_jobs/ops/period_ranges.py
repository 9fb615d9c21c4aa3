"""The ranges of the pages of tasks and tags, each read in periods of one length: a list of all
kinds in 31 of them at most, one kind in 170."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import DAY, FIVE_MINUTES, HOUR, MINUTE, SECOND, Instant, to_datetime

DEFAULT_RANGE: Final = "1h"
_LENGTHS: Final = {
    "1h": (FIVE_MINUTES, 12),
    "6h": (HOUR, 6),
    "24h": (HOUR, 24),
    "7d": (DAY, 7),
    "30d": (DAY, 30),
}
_FINE_LENGTHS: Final = {
    **_LENGTHS,
    "1h": (MINUTE, 60),
    "6h": (FIVE_MINUTES, 72),
    "7d": (HOUR, 168),
}
RANGES: Final = tuple(_LENGTHS)


class PeriodRange(Struct, frozen=True, kw_only=True):
    """From the start of a period until now; the last period is not over."""

    name: str
    length: Instant
    since: Instant
    now: Instant

    @property
    def starts(self) -> range:
        """The start of each period."""
        return range(self.since, self.now + 1, self.length)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return max((self.now - self.since) / SECOND, 1.0)

    @property
    def since_at(self) -> datetime:
        return to_datetime(self.since)

    @property
    def until_at(self) -> datetime:
        return to_datetime(self.now)


def period_range(name: str | None, now: Instant, *, fine: bool = False) -> PeriodRange:
    """The range of this name; BadOption for another one. ``fine``: in shorter periods, for one
    kind."""
    name = name or DEFAULT_RANGE
    if name not in _LENGTHS:
        raise BadOption(f"range={name!r} is not one of {', '.join(RANGES)}")
    length, periods = (_FINE_LENGTHS if fine else _LENGTHS)[name]
    since = now - now % length - periods * length
    return PeriodRange(name=name, length=length, since=since, now=now)
