"""Time ranges in the address: one of the usual ones up to now, or from … until after a zoom."""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import MINUTE, Instant, to_datetime

from .page import Given

USUAL: Final = "30m"
# Minutes, by the word in the address.
RANGES: Final = {"5m": 5, "30m": 30, "1h": 60, "3h": 180, "6h": 360, "24h": 1_440, "7d": 10_080}
_STEPS: Final = (1, 2, 5, 10, 30, 60, 180)
_POINTS: Final = 200
_LONGEST: Final = timedelta(days=31)


class Range(Struct, frozen=True, kw_only=True):
    """What a chart spans. ``word`` is empty for a range of the person's own."""

    word: str
    since: datetime
    until: datetime
    step_s: int

    @property
    def moments(self) -> list[float]:
        """When each point of a chart begins, in seconds."""
        first, end = int(self.since.timestamp()), int(self.until.timestamp())
        return [float(at) for at in range(first, end, self.step_s)]

    @property
    def unit(self) -> str:
        """What one point of a chart counts."""
        minutes = self.step_s // 60
        if minutes == 1:
            return "per minute"
        return f"per {minutes} min" if minutes < 60 else f"per {minutes // 60} h"


def range_of(given: Given, now: Instant) -> Range:
    """The range an address names; BadOption for one that cannot be."""
    if given.get("from") or given.get("until"):
        since, until = _moment("from", given), _moment("until", given)
        since = since.replace(second=0, microsecond=0)
        if until - since < timedelta(minutes=1):
            until = since + timedelta(minutes=1)
        if until - since > _LONGEST:
            raise BadOption("from and until must lie within 31 days of each other")
        return Range(word="", since=since, until=until, step_s=_step(until - since))
    word = given.get("range") or USUAL
    if word not in RANGES:
        raise BadOption(f"range={word!r} is not one of {', '.join(RANGES)}")
    length = timedelta(minutes=RANGES[word])
    step_s = _step(length)
    # whole steps: a chart must not jitter while its oldest point slides out
    step = step_s // 60 * MINUTE
    until = to_datetime(now - now % step + step)
    return Range(word=word, since=until - length, until=until, step_s=step_s)


def neighbours(chosen: Range, now: Instant) -> dict[str, dict[str, str]]:
    """Addresses of the ranges before, after, within and around this one, for those that have no
    mouse to drag with; one that cannot be is absent."""
    length = chosen.until - chosen.since
    middle = chosen.since + length / 2
    near = {
        "earlier": (chosen.since - length / 2, chosen.until - length / 2),
        "closer": (middle - length / 4, middle + length / 4),
        "wider": (chosen.since - length / 2, chosen.until + length / 2),
        "later": (chosen.since + length / 2, chosen.until + length / 2),
    }
    latest = to_datetime(now)
    return {
        name: {"from": f"{since:%Y-%m-%dT%H:%MZ}", "until": f"{until:%Y-%m-%dT%H:%MZ}"}
        for name, (since, until) in near.items()
        if since < latest and timedelta(minutes=2) <= until - since <= _LONGEST
    }


def _step(length: timedelta) -> int:
    minutes = length.total_seconds() / 60
    fitting = (step for step in _STEPS if minutes / step <= _POINTS)
    return next(fitting, 720) * 60


def _moment(name: str, given: Given) -> datetime:
    text = given.get(name, "")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not a time such as 2026-01-31T09:00Z") from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
