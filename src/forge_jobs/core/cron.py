"""Cron expressions: checks, and the next tick in a time zone.

cronsim does the calendar arithmetic, always on plain wall-clock time. This module decides what a
wall-clock time means on days when clocks are set forward or back:

* A *fixed* expression (neither its minute nor its hour begins with ``*``) runs once for each
  wall-clock time. A skipped time runs at the instant the clock is set forward; a time that occurs
  twice runs the first time.
* An *interval* expression follows the wall clock: a skipped time does not run, a time that occurs
  twice runs twice, so that ``*/10 * * * *`` runs every ten minutes of real time.
"""

import difflib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from .errors import BadCron
from .instant import SECOND, Instant, from_datetime, to_datetime

_SHORT_FORMS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SHAPE: Final = (
    "write 5 fields (minute hour day month weekday), or 6 with seconds first, "
    f"or one of {', '.join(_SHORT_FORMS)}"
)
_MAX_LENGTH: Final = 256
_NAMES: Final = {
    "january": "jan", "february": "feb", "march": "mar", "april": "apr", "june": "jun",
    "july": "jul", "august": "aug", "sept": "sep", "september": "sep", "october": "oct",
    "november": "nov", "december": "dec", "sunday": "sun", "monday": "mon", "tues": "tue",
    "tuesday": "tue", "wednesday": "wed", "thur": "thu", "thurs": "thu", "thursday": "thu",
    "friday": "fri", "saturday": "sat",
}  # fmt: skip
_WORD: Final = re.compile(r"[a-z]+")
# With the zone of the machine the same schedule would mean another time on every host.
_NO_ZONES: Final = frozenset({"localtime", "posixrules", "Factory", "leapseconds", "tzdata.zi"})
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_PROBE_FROM: Final = datetime(2024, 1, 1)  # noqa: DTZ001  -- wall-clock time, no zone is meant


@dataclass(frozen=True, slots=True)
class Cron:
    """A checked expression in a time zone; made by ``read``."""

    fields: str
    zone: ZoneInfo
    fixed: bool

    def next_after(self, after: Instant) -> Instant | None:
        """The first tick later than ``after``; None when there is none within 50 years."""
        since = to_datetime(after - after % SECOND)
        if self.zone.key == "UTC":
            return next((_as_instant(wall) for wall in self._wall_times(_plain(since))), None)
        if self.fixed:
            return self._next_fixed(since)
        return self._next_interval(since)

    def ticks(self, after: Instant, until: Instant) -> Iterator[Instant]:
        """All ticks later than ``after``, up to and including ``until``."""
        tick = self.next_after(after)
        while tick is not None and tick <= until:
            yield tick
            tick = self.next_after(tick)

    def _next_fixed(self, since: datetime) -> Instant | None:
        for wall in self._wall_times(_plain(since.astimezone(self.zone))):
            moment = self._first(wall)
            # The first of two equal wall-clock times may have passed.
            if moment > since:
                return _as_instant(moment)
        return None

    def _next_interval(self, since: datetime) -> Instant | None:
        offset = self._offset(since)
        start = _plain(since) + offset
        while True:
            wall = next(self._wall_times(start), None)
            if wall is None:
                return None
            moment = (wall - offset).replace(tzinfo=UTC)
            change = self._change(since, moment)
            if change is None:
                return _as_instant(moment)
            # Start again at the change of the offset, with the new offset.
            since, offset = change, self._offset(change)
            start = _plain(change) + offset - _SECOND

    def _wall_times(self, start: datetime) -> Iterator[datetime]:
        return CronSim(self.fields, start)

    def _first(self, wall: datetime) -> datetime:
        """The UTC time of a wall-clock time: the first of two, or the end of the gap it is in."""
        early = wall.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        if _plain(early.astimezone(self.zone)) == wall:
            return early
        before = wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        return self._change(before, early) or early

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta()

    def _change(self, since: datetime, until: datetime) -> datetime | None:
        """The first second in (since, until] whose offset differs from that of ``since``."""
        offset, low = self._offset(since), since
        while low < until:
            high = min(low + _DAY, until)
            if self._offset(high) != offset:
                break
            low = high
        else:
            return None
        while high - low > _SECOND:
            middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high


def read(expression: str, zone: str = "UTC") -> Cron:
    """Check an expression and its time zone. The BadCron error says what to write instead."""
    if not isinstance(expression, str) or len(expression) > _MAX_LENGTH:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadCron(f"a cron expression is a text of at most {_MAX_LENGTH} characters: {_SHAPE}")
    return _read(expression, zone)


@functools.lru_cache(maxsize=1_024)
def _read(expression: str, zone: str) -> Cron:
    fields = _fields(expression)
    parts = fields.split()
    try:
        probe = CronSim(fields, _PROBE_FROM)
    except CronSimError as error:
        raise BadCron(f"cron expression {expression!r}: {_error_text(error, parts)}") from error
    if next(probe, None) is None:
        raise BadCron(f"cron expression {expression!r} never comes: no such day within 50 years")
    _check_steps(expression, parts)
    minute, hour = parts[-5], parts[-4]
    fixed = not minute.startswith("*") and not hour.startswith("*")
    return Cron(fields, time_zone(zone), fixed)


def time_zone(name: str) -> ZoneInfo:
    """An IANA time zone, or BadCron with the nearest names."""
    if isinstance(name, str) and name not in _NO_ZONES:  # pyright: ignore[reportUnnecessaryIsInstance]
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    near = difflib.get_close_matches(
        str(name), sorted(available_timezones() - _NO_ZONES), n=3, cutoff=0.6
    )
    remedy = (
        f"did you mean {', '.join(near)}?" if near else "use a name such as Europe/Paris or UTC"
    )
    raise BadCron(f"time zone {name!r} is not known: {remedy}")


def _fields(expression: str) -> str:
    text = " ".join(expression.lower().split())
    if text.startswith("@"):
        if text == "@reboot":
            raise BadCron(
                "cron expression '@reboot' is not supported: workers of a cluster come and go; "
                "enqueue the job where your program starts"
            )
        if text not in _SHORT_FORMS:
            raise BadCron(f"cron expression {expression!r} is not known: {_SHAPE}")
        return _SHORT_FORMS[text]
    parts = text.split(" ")
    if len(parts) == 7:
        raise BadCron(
            f"cron expression {expression!r} has 7 fields: a year field is not supported, "
            "write 6 fields (second minute hour day month weekday) and disable the schedule "
            "when its year is over"
        )
    if len(parts) not in (5, 6):
        raise BadCron(f"cron expression {expression!r} has {len(text.split())} fields: {_SHAPE}")
    for position in (-3, -1):
        parts[position] = "*" if parts[position] == "?" else parts[position]
    for position in (-2, -1):
        parts[position] = _WORD.sub(lambda word: _NAMES.get(word[0], word[0]), parts[position])
    parts[-1] = parts[-1].replace("-sun", "-7")
    return " ".join(parts)


_RULES: Final = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 (of a month that has it), L for the last day, LW for the last weekday",
    "month": "1-12 or jan-dec",
    "day-of-week": "0-7 or sun-sat (0 and 7 are Sunday), 5L for the last Friday, 1#2 for the "
    "second Monday; a range runs from low to high, so write fri-sun,mon",
}
_FIELD_NAMES: Final = tuple(_RULES)


def _error_text(error: CronSimError, parts: list[str]) -> str:
    name = str(error).removeprefix("Bad ")
    if name not in _RULES:
        return f"{error}: {_SHAPE}"
    value = parts[_FIELD_NAMES.index(name) - len(_FIELD_NAMES)]
    return f"{name} {value!r} is wrong: use *, lists, ranges and steps of {_RULES[name]}"


# How many values a field has; a step of so many or more leaves only the first one.
_VALUES: Final = {
    "second": 60, "minute": 60, "hour": 24, "day-of-month": 31, "month": 12, "day-of-week": 7,
}  # fmt: skip
_ONCE: Final = {
    "second": "once a minute is '0 * * * * *'",
    "minute": "once an hour is '0 * * * *', every two hours '0 */2 * * *'",
    "hour": "once a day is '0 0 * * *', every two days '0 0 */2 * *'",
    "day-of-month": "once a month is '0 0 1 * *'",
    "month": "once a year is '0 0 1 1 *'",
    "day-of-week": "once a week is '0 0 * * sun'",
}


def _check_steps(expression: str, parts: list[str]) -> None:
    """BadCron for a step that is as long as its field or longer: ``*/90`` minutes would run at
    minute 0 only, every hour."""
    for name, part in zip(_FIELD_NAMES[-len(parts) :], parts, strict=True):
        for item in part.split(","):
            step = item.partition("/")[2]
            if step and int(step) >= _VALUES[name]:
                raise BadCron(
                    f"cron expression {expression!r}: {name} {part!r} is wrong: the field has "
                    f"{_VALUES[name]} values, so a step of {step} leaves only the first: "
                    f"{_ONCE[name]}"
                )


def _plain(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None, fold=0)


def _as_instant(moment: datetime) -> Instant:
    return from_datetime(moment.replace(tzinfo=moment.tzinfo or UTC), field="tick")
