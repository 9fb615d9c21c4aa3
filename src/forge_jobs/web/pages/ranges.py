"""Parses the time range in the URL: a named one up to now, or from … until after a zoom."""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import MINUTE, Instant, to_datetime

from .page import Params

DEFAULT_RANGE: Final = "30m"
# Minutes by name.
RANGES: Final = {
    "5m": 5,
    "15m": 15,
    "30m": 30,
    "1h": 60,
    "3h": 180,
    "6h": 360,
    "24h": 1_440,
    "7d": 10_080,
}
_STEPS: Final = (1, 2, 5, 10, 30, 60, 180)
_MAX_POINTS: Final = 200
_MAX_LENGTH: Final = timedelta(days=31)


class ChartRange(Struct, frozen=True, kw_only=True):
    """The time range of a chart. ``name`` is empty for a custom range."""

    name: str
    since: datetime
    until: datetime
    step_s: int

    @property
    def point_times(self) -> list[float]:
        """The start of each point, in seconds since 1970."""
        first, end = int(self.since.timestamp()), int(self.until.timestamp())
        return [float(at) for at in range(first, end, self.step_s)]

    @property
    def unit(self) -> str:
        """The length of one point as a text."""
        minutes = self.step_s // 60
        if minutes == 1:
            return "per minute"
        return f"per {minutes} min" if minutes < 60 else f"per {minutes // 60} h"


def parse_range(params: Params, now: Instant) -> ChartRange:
    """The range of these parameters; BadOption for an invalid one."""
    if params.get("from") or params.get("until"):
        since, until = _parse_time("from", params), _parse_time("until", params)
        since = since.replace(second=0, microsecond=0)
        if until - since < timedelta(minutes=1):
            until = since + timedelta(minutes=1)
        if until - since > _MAX_LENGTH:
            raise BadOption("from and until must lie within 31 days of each other")
        return ChartRange(name="", since=since, until=until, step_s=_step_s(until - since))
    name = params.get("range") or DEFAULT_RANGE
    if name not in RANGES:
        raise BadOption(f"range={name!r} is not one of {', '.join(RANGES)}")
    length = timedelta(minutes=RANGES[name])
    step_s = _step_s(length)
    # aligned to whole steps, so that points do not shift while time passes
    step = step_s // 60 * MINUTE
    until = to_datetime(now - now % step + step)
    return ChartRange(name=name, since=until - length, until=until, step_s=step_s)


def adjacent_ranges(range_: ChartRange, now: Instant) -> dict[str, dict[str, str]]:
    """Parameters of the earlier, later, closer and wider range, for zooming without a mouse. A
    range outside the limits is absent."""
    length = range_.until - range_.since
    middle = range_.since + length / 2
    ranges = {
        "earlier": (range_.since - length / 2, range_.until - length / 2),
        "closer": (middle - length / 4, middle + length / 4),
        "wider": (range_.since - length / 2, range_.until + length / 2),
        "later": (range_.since + length / 2, range_.until + length / 2),
    }
    now_at = to_datetime(now)
    return {
        name: {"from": f"{since:%Y-%m-%dT%H:%MZ}", "until": f"{until:%Y-%m-%dT%H:%MZ}"}
        for name, (since, until) in ranges.items()
        if since < now_at and timedelta(minutes=2) <= until - since <= _MAX_LENGTH
    }


def _step_s(length: timedelta) -> int:
    minutes = length.total_seconds() / 60
    steps = (step for step in _STEPS if minutes / step <= _MAX_POINTS)
    return next(steps, 720) * 60


def _parse_time(name: str, params: Params) -> datetime:
    text = params.get(name, "")
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not a time such as 2026-01-31T09:00Z") from None
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
