"""Instants and durations as plain numbers.

An *instant* is a whole number of microseconds since 1970 in UTC, by the store clock. A *duration*
is a number of seconds. Whole microseconds compare and sort the same way in Python, SQLite, Postgres
and Redis; floating-point seconds do not.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from .errors import BadDuration, BadTime

Instant: TypeAlias = int
Duration: TypeAlias = str | int | float | timedelta

SECOND: Instant = 1_000_000
MINUTE: Instant = 60 * SECOND
FIVE_MINUTES: Instant = 5 * MINUTE
HOUR: Instant = 60 * MINUTE
DAY: Instant = 24 * HOUR
# The due time of a job that waits for an event without a deadline: the end of the year 9999.
NEVER: Instant = 253_402_300_799 * SECOND

_MAX_DURATION_S = 100 * 365 * 86_400.0
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def seconds(value: Duration, *, field: str) -> float:
    """The seconds of a duration: ``"10m"``, ``"1h30m"``, a number of seconds, or a timedelta.

    Raises BadDuration naming ``field`` for anything else, for a negative value and for one beyond
    a hundred years.

    >>> seconds("1h30m", field="delay")
    5400.0
    """
    match value:
        case bool():
            raise BadDuration(field, value)
        case int() | float():
            span = float(value)
        case timedelta():
            span = value.total_seconds()
        case str():
            span = _parse(value, field)
        case _:
            raise BadDuration(field, value)
    if not 0 <= span <= _MAX_DURATION_S:
        raise BadDuration(field, value)
    return span


def _parse(text: str, field: str) -> float:
    compact = text.strip().replace(" ", "").lower()
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise BadDuration(field, text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def after(now: Instant, span_s: float) -> Instant:
    """The instant ``span_s`` seconds after ``now``."""
    return now + round(span_s * SECOND)


def due_at(now: Instant, *, delay_s: float, run_at: Instant | None) -> Instant:
    """``run_at``, else ``delay_s`` after ``now``; never before ``now``."""
    return after(now, delay_s) if run_at is None else max(run_at, now)


def from_datetime(moment: datetime, *, field: str) -> Instant:
    """The instant of an aware datetime. BadTime for a naive one: its zone is not known."""
    if moment.tzinfo is None:
        raise BadTime(field, moment.isoformat())
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def to_datetime(instant: Instant) -> datetime:
    """The aware UTC datetime of an instant."""
    return _EPOCH + timedelta(microseconds=instant)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
