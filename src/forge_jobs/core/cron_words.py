"""A cron expression in words: ``0 9 * * mon-fri`` is "at 09:00, on Monday to Friday"."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from . import cron

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_STEP: Final = re.compile(r"(?:\*|0)/(\d+)")
_RANGE: Final = re.compile(r"(\w+)-(\w+)(?:/(\d+))?")
# More times than this are not listed one by one.
_MAX_TIMES: Final = 6


def in_words(expression: str) -> str:
    """What an expression says; BadCron for an invalid one."""
    fields = cron.read(expression).fields.split()
    second = fields.pop(0) if len(fields) == 6 else "0"
    minute, hour, day, month, weekday = fields
    parts = [_time(second, minute, hour), _day(day, weekday)]
    if month != "*":
        parts.append(f"in {_items(month, _month)}")
    return ", ".join(part for part in parts if part)


def _time(second: str, minute: str, hour: str) -> str:
    if second != "0":
        within = _minutes(minute, hour)
        if step := _step(second):
            every = f"every {step} seconds"
        elif second == "*":
            every = "every second"
        else:
            every = f"at second {_items(second, str)}"
        return every if within == "every minute" else f"{every}, {within}"
    return _minutes(minute, hour)


def _minutes(minute: str, hour: str) -> str:
    hours, minutes = hour.split(","), minute.split(",")
    numbers = all(part.isdigit() for part in (*hours, *minutes))
    if numbers and len(hours) * len(minutes) <= _MAX_TIMES:
        return "at " + _joined([f"{int(h):02}:{int(m):02}" for h in hours for m in minutes])
    if minute == "*":
        often = "every minute"
    elif step := _step(minute):
        often = f"every {step} minutes"
    elif hour == "*" or _step(hour):
        often = "every hour" if hour == "*" else f"every {_step(hour)} hours"
        return f"{often} at minute {_items(minute, str)}"
    else:
        often = f"at minute {_items(minute, str)}"
    if hour == "*":
        return often
    if step := _step(hour):
        return f"{often} of every {_ordinal(step)} hour"
    return f"{often} of the hours {_items(hour, str)}"


def _day(day: str, weekday: str) -> str:
    on_days = "" if day == "*" else _month_days(day)
    on_weekdays = "" if weekday == "*" else f"on {_items(weekday, _weekday)}"
    if on_days and on_weekdays:
        return f"{on_days} or {on_weekdays}"
    return on_days or on_weekdays


def _month_days(day: str) -> str:
    if day.upper() == "L":
        return "on the last day of the month"
    if step := _step(day):
        return f"on every {_ordinal(step)} day of the month"
    word = "day" if day.isdigit() else "days"
    return f"on {word} {_items(day, str)} of the month"


def _weekday(text: str) -> str:
    name, _, number = text.partition("#")
    if number:
        return f"the {_ordinal(int(number))} {_weekday(name)} of the month"
    if text.upper().endswith("L") and len(text) > 1:
        return f"the last {_weekday(text[:-1])} of the month"
    return _DAYS[int(text) % 7] if text.isdigit() else _named(text, _DAYS)


def _month(text: str) -> str:
    return _MONTHS[int(text) - 1] if text.isdigit() else _named(text, _MONTHS)


def _named(text: str, names: Sequence[str]) -> str:
    return next((name for name in names if name[:3].lower() == text[:3].lower()), text)


def _items(field: str, name: Callable[[str], str]) -> str:
    words: list[str] = []
    for item in field.split(","):
        found = _RANGE.fullmatch(item)
        if found is None:
            words.append(f"every {_ordinal(step)}" if (step := _step(item)) else name(item))
            continue
        first, last, every = found.groups()
        span = f"{name(first)} to {name(last)}"
        words.append(f"{span}, every {_ordinal(int(every))}" if every else span)
    return _joined(words)


def _step(field: str) -> int | None:
    found = _STEP.fullmatch(field)
    return None if found is None else int(found[1])


def _ordinal(number: int) -> str:
    if number == 2:
        return "second"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 // 10 != 1 else 0, "th")
    return f"{number}{ending}"


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
