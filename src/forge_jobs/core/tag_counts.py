"""Counts by tag: what the runs of jobs with a tag came to, per day, hour and task.

At most ``MAX_VALUES`` values are kept per day. They are the heaviest ones, found as Space-Saving
does: when a new value comes and there is no room, it takes the place of the lightest one and
inherits its weight, and what was counted for that one is added to ``OTHER``. So a value with more
than 1/500 of a day's weight is always kept, whenever it comes; what is counted for a value is
never too much.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .instant import DAY, HOUR, Instant

MAX_VALUES: Final = 500
MAX_TASKS: Final = 20
OTHER: Final = ""
"""The tag under which values without a place of their own are counted; no tag is empty."""

# So that a value with many short runs weighs something.
_RUN_WEIGHT: Final = 0.01


class TagSums(Struct, frozen=True, omit_defaults=True):
    """What runs came to. ``runs``: ends of claims whose handler was called. ``waited_s`` and
    ``ran_s`` are the sums of their times."""

    runs: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    ran_s: float = 0.0
    waited_s: float = 0.0

    @property
    def weight(self) -> float:
        """How much of the system's work they were: seconds of run time, and a bit per run."""
        return self.ran_s + _RUN_WEIGHT * self.runs


class TagPart(Struct, frozen=True, array_like=True):
    """What one transaction adds: the runs of a tag, queue and kind in the minute ``at``."""

    at: Instant
    tag: str
    queue: str
    kind: str
    sums: TagSums


class TaskSums(Struct, frozen=True):
    """The part of one queue and kind; both are empty for all others together."""

    queue: str
    kind: str
    sums: TagSums


class TagDay(Struct, frozen=True, kw_only=True, array_like=True):
    """A tag on one day (``day`` is its start in UTC): in all, by hour of the day, and by task."""

    day: Instant
    tag: str
    total: TagSums
    weight: float = 0.0
    hours: dict[int, TagSums] = {}
    tasks: tuple[TaskSums, ...] = ()

    @property
    def summary(self) -> "TagDay":
        """The same without hours and tasks."""
        return TagDay(day=self.day, tag=self.tag, total=self.total, weight=self.weight)


class DayChange(Struct, frozen=True, kw_only=True):
    """What a day's rows become: rows to write, and tags whose rows are deleted."""

    put: tuple[TagDay, ...]
    delete: tuple[str, ...] = ()


def add_sums(sums: Iterable[TagSums]) -> TagSums:
    """All of them together."""
    runs = done = retried = dead = 0
    ran_s = waited_s = 0.0
    for one in sums:
        runs += one.runs
        done += one.done
        retried += one.retried
        dead += one.dead
        ran_s += one.ran_s
        waited_s += one.waited_s
    return TagSums(runs, done, retried, dead, ran_s, waited_s)


def days_of(parts: Iterable[TagPart]) -> dict[Instant, list[TagDay]]:
    """The parts as tags of days, by day."""
    groups: dict[tuple[Instant, str], list[TagPart]] = {}
    for part in parts:
        groups.setdefault((part.at - part.at % DAY, part.tag), []).append(part)
    days: dict[Instant, list[TagDay]] = {}
    for (day, tag), group in sorted(groups.items(), key=lambda item: item[0]):
        found = [
            TagDay(
                day=day,
                tag=tag,
                total=part.sums,
                hours={(part.at - day) // HOUR: part.sums},
                tasks=(TaskSums(part.queue, part.kind, part.sums),),
            )
            for part in group
        ]
        days.setdefault(day, []).append(merge_days(found))
    return days


def merge_days(parts: Sequence[TagDay], *, tag: str | None = None) -> TagDay:
    """One tag of one day, of several parts; the weight is that of the sums. ``tag``: under this
    one instead of that of the first."""
    first = parts[0]
    if len(parts) == 1 and tag is None:
        return replace(first, weight=first.weight or first.total.weight)
    hours: dict[int, list[TagSums]] = {}
    tasks: dict[tuple[str, str], list[TagSums]] = {}
    for part in parts:
        for hour, sums in part.hours.items():
            hours.setdefault(hour, []).append(sums)
        for task in part.tasks:
            tasks.setdefault((task.queue, task.kind), []).append(task.sums)
    total = add_sums(part.total for part in parts)
    return TagDay(
        day=first.day,
        tag=first.tag if tag is None else tag,
        total=total,
        weight=total.weight,
        hours={hour: add_sums(sums) for hour, sums in sorted(hours.items())},
        tasks=heaviest_tasks(
            [TaskSums(queue, kind, add_sums(sums)) for (queue, kind), sums in tasks.items()]
        ),
    )


def heaviest_tasks(tasks: Sequence[TaskSums]) -> tuple[TaskSums, ...]:
    """The ``MAX_TASKS`` heaviest, the rest as one without names."""
    named = sorted(
        (task for task in tasks if task.kind),
        key=lambda task: (-task.sums.weight, task.queue, task.kind),
    )
    rest = [*named[MAX_TASKS:], *(task for task in tasks if not task.kind)]
    if not rest:
        return tuple(named)
    return (*named[:MAX_TASKS], TaskSums("", "", add_sums(task.sums for task in rest)))


def kept_weights(
    stored: Mapping[str, float], incoming: Iterable[TagDay], *, limit: int = MAX_VALUES
) -> dict[str, float]:
    """The tags that have a place of their own on a day, with their weights. ``stored``: those that
    have one so far."""
    weights = {tag: weight for tag, weight in stored.items() if tag != OTHER}
    new: list[tuple[float, str]] = []
    for day in incoming:
        if day.tag in weights:
            weights[day.tag] += day.total.weight
        elif day.tag != OTHER:
            new.append((day.total.weight, day.tag))
    places = [(weight, tag) for tag, weight in weights.items()]
    heapq.heapify(places)
    for weight, tag in sorted(new):
        if len(places) < limit:
            heapq.heappush(places, (weight, tag))
        else:
            heapq.heapreplace(places, (places[0][0] + weight, tag))
    return {tag: weight for weight, tag in places}


def touched_tags(
    kept: Mapping[str, float], stored: Iterable[str], incoming: Iterable[TagDay]
) -> set[str]:
    """The stored tags whose rows ``change_day`` needs."""
    rows = set(stored)
    return rows & {OTHER, *(day.tag for day in incoming)} | {tag for tag in rows if tag not in kept}


def change_day(
    kept: Mapping[str, float], known: Iterable[TagDay], incoming: Iterable[TagDay]
) -> DayChange:
    """What the rows of a day become. ``known`` are the stored rows of ``touched_tags``."""
    parts: dict[str, list[TagDay]] = {}
    gone: set[str] = set()
    for day in known:
        parts.setdefault(day.tag if day.tag in kept else OTHER, []).append(day)
        if day.tag not in kept and day.tag != OTHER:
            gone.add(day.tag)
    for day in incoming:
        parts.setdefault(day.tag if day.tag in kept else OTHER, []).append(day)
    put = [
        replace(merged, weight=kept.get(tag, 0.0))
        for tag, days in parts.items()
        for merged in (merge_days(days, tag=tag),)
    ]
    return DayChange(put=tuple(put), delete=tuple(sorted(gone)))


def within(
    parts: Iterable[TagPart], *, since: Instant, until: Instant, tag: str | None
) -> list[TagPart]:
    """The parts of these days, of one tag or of all."""
    return [part for part in parts if since <= part.at < until and tag in (None, part.tag)]


def with_incoming(
    stored: Sequence[TagDay], parts: Iterable[TagPart], *, tag: str | None = None
) -> list[TagDay]:
    """All rows of some days, as they are after these parts were rolled up; by day, then tag. With
    ``tag``, everything is of one tag, and a value without a place is shown as if it had one."""
    changed = days_of(parts)
    rows_by_day: dict[Instant, list[TagDay]] = {day: [] for day in changed}
    found: list[TagDay] = []
    for row in stored:
        rows_by_day.get(row.day, found).append(row)
    for day, incoming in changed.items():
        rows = rows_by_day[day]
        if tag is not None:
            found.append(merge_days([*rows, *incoming]))
            continue
        kept = kept_weights({row.tag: row.weight for row in rows}, incoming)
        touched = touched_tags(kept, (row.tag for row in rows), incoming)
        change = change_day(kept, (row for row in rows if row.tag in touched), incoming)
        found += (row for row in rows if row.tag not in touched)
        found += change.put
    return sorted(found, key=lambda row: (row.day, row.tag))
