"""The ranges of the pages of tasks and tags: each is read in periods of one length, so that none
needs more than 61 of them."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import DAY, HOUR, MINUTE, SECOND, Instant, to_datetime

DEFAULT_RANGE: Final = "1h"
_LENGTHS: Final = {
    "1h": (MINUTE, 60),
    "6h": (HOUR, 6),
    "24h": (HOUR, 24),
    "7d": (DAY, 7),
    "30d": (DAY, 30),
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


def period_range(name: str | None, now: Instant) -> PeriodRange:
    """The range of this name; BadOption for another one."""
    name = name or DEFAULT_RANGE
    if name not in _LENGTHS:
        raise BadOption(f"range={name!r} is not one of {', '.join(RANGES)}")
    length, periods = _LENGTHS[name]
    since = now - now % length - periods * length
    return PeriodRange(name=name, length=length, since=since, now=now)
