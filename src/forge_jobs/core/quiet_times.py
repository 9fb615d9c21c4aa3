"""Quiet times: hours of the week, in a time zone, in which nothing is announced."""

import re
from collections.abc import Sequence
from datetime import time, timedelta
from typing import Final

from .cron import time_zone
from .errors import BadOption
from .instant import Instant, to_datetime

MAX_QUIET: Final = 20
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW: Final = re.compile(
    r"(?:(?P<days>[a-z,\-]+)\s+)?(?P<start>\d{1,2}:\d\d)\s*-\s*(?P<end>\d{1,2}:\d\d)"
)
_ALL_DAYS: Final = frozenset(range(7))


def checked_quiet(windows: Sequence[str], zone: str) -> tuple[str, ...]:
    """The windows in one spelling; BadOption for one that cannot be read, or an unknown zone."""
    if len(windows) > MAX_QUIET:
        raise BadOption(f"quiet: {len(windows)} windows are more than {MAX_QUIET}")
    time_zone(zone)
    return tuple(dict.fromkeys(_spelling(window) for window in windows))


def is_quiet(windows: Sequence[str], zone: str, now: Instant) -> bool:
    """Whether ``now`` lies in one of the windows. A window that ends before it begins goes on into
    the next day, which is not counted as a day of its own: "fri 22:00-07:00" ends on Saturday."""
    if not windows:
        return False
    here = to_datetime(now).astimezone(time_zone(zone))
    at, day = here.time(), here.weekday()
    before = (here.date() - timedelta(days=1)).weekday()
    for days, start, end in map(_window, windows):
        if start < end:
            if day in days and start <= at < end:
                return True
        elif (day in days and at >= start) or (before in days and at < end):
            return True
    return False


def _spelling(text: str) -> str:
    days, start, end = _window(text)
    named = "" if days == _ALL_DAYS else ",".join(_DAYS[day] for day in sorted(days)) + " "
    last = "24:00" if end == time.max else f"{end:%H:%M}"
    return f"{named}{start:%H:%M}-{last}"


def _window(text: str) -> tuple[frozenset[int], time, time]:
    found = _WINDOW.fullmatch(text.strip().lower())
    if found is None:
        raise _unreadable(text)
    days = _ALL_DAYS if found["days"] is None else _days(found["days"], text)
    return days, _time(found["start"], text), _time(found["end"], text)


def _days(names: str, text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in names.split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise _unreadable(text)
        start, end = _DAYS.index(first), _DAYS.index(last or first)
        days.update((start + step) % 7 for step in range((end - start) % 7 + 1))
    return frozenset(days)


def _time(clock: str, text: str) -> time:
    if clock == "24:00":
        return time.max
    hours, _, minutes = clock.partition(":")
    try:
        return time(int(hours), int(minutes))
    except ValueError:
        raise _unreadable(text) from None


def _unreadable(text: str) -> BadOption:
    return BadOption(
        f'quiet={text!r} is not a quiet time: use "22:00-07:00", "sat,sun 00:00-24:00" or '
        '"mon-fri 18:00-08:00"'
    )
