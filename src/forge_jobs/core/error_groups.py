"""Error groups: the counters of failures that have the same cause.

A store keeps one record per group. ``merged`` adds failures to it; every part of a record is
bounded, so that a group costs the same whether it has ten failures or ten million.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from .errors import BadOption
from .instant import MINUTE, Instant

HOUR: Final = 60 * MINUTE
MAX_GROUPS: Final = 1_000
MAX_VALUES: Final = 50
MAX_SAMPLES: Final = 5
MAX_LATEST_CHARS: Final = 500
MINUTES_KEPT: Final = 120
HOURS_KEPT: Final = 24 * 14
# In a full store, a group that was not seen for so long gives way to a new one.
GIVES_WAY_AFTER: Final = 24 * HOUR
# The group of failures that would have been another group in a full store, and the value that
# stands for the rest of a bounded set.
OTHER: Final = "other"
_ID: Final = re.compile("[0-9a-z]{1,40}")


class GroupState(StrEnum):
    """*open*: nobody resolved it. *resolved*: not seen since. *returned*: seen after that."""

    OPEN = "open"
    RESOLVED = "resolved"
    RETURNED = "returned"


class FailureCount(Struct, frozen=True, kw_only=True):
    """Failures of one group, kind, queue and worker; ``jobs`` are ids of some of them."""

    group: str
    type: str = ""
    message: str = ""
    frame: str = ""
    latest: str = ""
    at: Instant
    kind: str
    queue: str
    worker: str = ""
    version: str = ""
    count: int = 1
    jobs: tuple[str, ...] = ()


class FailureTrend(Struct, frozen=True, array_like=True, gc=False):
    """Failures per minute or hour, one after the other from ``first`` on, the empty ones too: a
    thousand groups are read at once, and numbers are read faster than pairs."""

    first: Instant = 0
    counts: tuple[int, ...] = ()

    def points(self, width: int) -> list[tuple[Instant, int]]:
        """The start and the failures of each minute or hour that has some."""
        return [
            (self.first + place * width, count) for place, count in enumerate(self.counts) if count
        ]

    def since(self, at: Instant, width: int) -> int:
        """Failures from the minute or hour of an instant on."""
        return sum(self.counts[max((at - self.first) // width, 0) :])


class ErrorGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One group as it is stored.

    ``latest`` is the newest message as it was. ``kinds`` to ``versions`` are
    failures by value, at most 50 values each and the rest as ``other``. ``samples`` are ids of the
    newest jobs, newest first.
    """

    id: str
    type: str = ""
    message: str = ""
    frame: str = ""
    latest: str = ""
    count: int = 0
    first_at: Instant = 0
    last_at: Instant = 0
    minutes: FailureTrend = FailureTrend()
    hours: FailureTrend = FailureTrend()
    kinds: Mapping[str, int] = {}
    queues: Mapping[str, int] = {}
    workers: Mapping[str, int] = {}
    versions: Mapping[str, int] = {}
    samples: tuple[str, ...] = ()
    resolved_at: Instant | None = None
    resolved_by: str = ""
    returned_at: Instant | None = None

    @property
    def state(self) -> GroupState:
        if self.resolved_at is None:
            return GroupState.OPEN
        return GroupState.RESOLVED if self.returned_at is None else GroupState.RETURNED

    @property
    def title(self) -> str:
        """``ValueError: no user <n>``."""
        return ": ".join(part for part in (self.type, self.message) if part) or "(no message)"

    def count_since(self, since: Instant) -> int:
        """Failures from this instant on: by whole minutes in the last two hours, by hours before
        that."""
        if since > self.last_at - MINUTES_KEPT * MINUTE:
            return self.minutes.since(since, MINUTE)
        return self.hours.since(since, HOUR)


class ErrorFilter(Struct, frozen=True, kw_only=True):
    """Conditions that must all hold. ``since``: seen since then."""

    since: Instant | None = None
    kind: str | None = None
    queue: str | None = None
    states: tuple[GroupState, ...] = ()


def group_id(text: object) -> str:
    """The id, if it has the form of one; BadOption otherwise."""
    if isinstance(text, str) and _ID.fullmatch(text) is not None:
        return text
    raise BadOption(f"group={text!r} is no id of an error group: `forge errors list` shows them")


def matches(group: ErrorGroup, wanted: ErrorFilter) -> bool:
    """Whether a group matches a filter."""
    return (
        (wanted.since is None or group.last_at >= wanted.since)
        and (wanted.kind is None or wanted.kind in group.kinds)
        and (wanted.queue is None or wanted.queue in group.queues)
        and (not wanted.states or group.state in wanted.states)
    )


def merged(known: ErrorGroup | None, failures: Sequence[FailureCount]) -> ErrorGroup:
    """A group with more failures, all of that group."""
    first = failures[0]
    group = known or ErrorGroup(
        id=first.group, type=first.type, message=first.message, frame=first.frame,
        first_at=first.at, last_at=first.at,
    )  # fmt: skip
    newest = max(failures, key=lambda failure: failure.at)
    last_at = max(group.last_at, newest.at)
    returned_at = group.returned_at
    if group.resolved_at is not None and returned_at is None:
        later = [failure.at for failure in failures if failure.at > group.resolved_at]
        returned_at = min(later, default=None)
    return structs.replace(
        group,
        latest=newest.latest[:MAX_LATEST_CHARS] if newest.at >= group.last_at else group.latest,
        count=group.count + sum(failure.count for failure in failures),
        first_at=min(group.first_at, *(failure.at for failure in failures)),
        last_at=last_at,
        minutes=_trend(group.minutes, failures, MINUTE, MINUTES_KEPT),
        hours=_trend(group.hours, failures, HOUR, HOURS_KEPT),
        kinds=_values(group.kinds, ((each.kind, each.count) for each in failures)),
        queues=_values(group.queues, ((each.queue, each.count) for each in failures)),
        workers=_values(group.workers, ((each.worker, each.count) for each in failures)),
        versions=_values(group.versions, ((each.version, each.count) for each in failures)),
        samples=_samples(group.samples, failures),
        returned_at=returned_at,
    )


def merge_all(
    known: Mapping[str, ErrorGroup], failures: Iterable[FailureCount]
) -> list[ErrorGroup]:
    """The groups that these failures change; ``known`` has those of them that are stored."""
    by_group: dict[str, list[FailureCount]] = {}
    for failure in failures:
        by_group.setdefault(failure.group, []).append(failure)
    return [merged(known.get(group), of_group) for group, of_group in sorted(by_group.items())]


def bounded(
    failures: Sequence[FailureCount], known: Iterable[str], room: int
) -> list[FailureCount]:
    """The failures, with those of unknown groups counted as *other* once there is no room for
    another group."""
    names, kept = set(known), list[FailureCount]()
    for failure in failures:
        if failure.group not in names:
            if room <= 0:
                failure = structs.replace(
                    failure, group=OTHER, type="", frame="",
                    message=f"failures of more than {MAX_GROUPS:,} groups",
                )  # fmt: skip
            else:
                names.add(failure.group)
                room -= 1
        kept.append(failure)
    return kept


def resolved(group: ErrorGroup, *, at: Instant, by: str) -> ErrorGroup:
    """The group, marked as resolved at this instant. It may have been seen since then."""
    later = group.last_at if group.last_at > at else None
    return structs.replace(group, resolved_at=at, resolved_by=by, returned_at=later)


def reopened(group: ErrorGroup) -> ErrorGroup:
    """The group without its mark."""
    return structs.replace(group, resolved_at=None, resolved_by="", returned_at=None)


def _trend(
    known: FailureTrend, failures: Sequence[FailureCount], width: int, kept: int
) -> FailureTrend:
    """The trend with more failures; the newest ``kept`` minutes or hours."""
    counts = dict(known.points(width))
    for failure in failures:
        at = failure.at - failure.at % width
        counts[at] = counts.get(at, 0) + failure.count
    last = max(counts)
    first = max(min(counts), last - (kept - 1) * width)
    return FailureTrend(first, tuple(counts.get(at, 0) for at in range(first, last + width, width)))


def _values(known: Mapping[str, int], added: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    counts = dict(known)
    for value, count in added:
        if not value:
            continue
        if value not in counts and len(counts) >= MAX_VALUES:
            value = OTHER
        counts[value] = counts.get(value, 0) + count
    return counts


def _samples(known: Sequence[str], failures: Sequence[FailureCount]) -> tuple[str, ...]:
    newest = [job for each in sorted(failures, key=lambda one: -one.at) for job in each.jobs]
    return tuple(dict.fromkeys((*newest, *known)))[:MAX_SAMPLES]
