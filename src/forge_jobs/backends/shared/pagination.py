"""Walking through jobs from the newest to the oldest, for a filter that no single index answers.

A walk takes keys from sources (the primary key, or indexes that hold jobs of some states), puts
them in order and asks which of them match. It looks at a bounded number of jobs, so that a filter
that hardly anything fits costs no more than one that everything fits; where it stops, the next call
goes on. Here is the arithmetic alone: a backend answers the questions that a walk yields.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.redact import HIDDEN, prose

MAX_ROWS_READ: Final = 5_000
_FIRST: Final = 250
_SECOND: Final = 2_500
# Keys rise with time, but two writers may read their clocks a little apart.
_SLACK: Final = 60 * SECOND
MAX_KEY: Final = (1 << 63) - 1

Key: TypeAlias = int


class ReadCounters(Struct, frozen=True):
    """Asks for the counters: (queue, kind, status, jobs)."""


class ReadKeyRange(Struct, frozen=True):
    """Asks for the lowest and the highest key; None without jobs."""


class ReadFirstKey(Struct, frozen=True):
    """Asks for the first job from a key on: (key, enqueued_at)."""

    key: Key


class ReadKeys(Struct, frozen=True):
    """Asks every source for its ``most`` highest keys below one; each answer highest first."""

    sources: tuple[str, ...]
    below: Key
    most: int


class ReadMatching(Struct, frozen=True):
    """Asks which of these jobs match the filter: (key, last error, payload), in any order. The
    payload may be None unless the filter asks for a piece of it."""

    keys: Sequence[Key]


PageQuery: TypeAlias = ReadCounters | ReadKeyRange | ReadFirstKey | ReadKeys | ReadMatching
PageSteps: TypeAlias = Generator[PageQuery, Any, "FoundKeys"]


class FoundKeys(Struct, frozen=True):
    """Matching keys, highest first. ``rest``: what was not looked at lies below this key; None
    when nothing is left. ``stopped``: it ended for having looked at enough, not for a full page."""

    keys: list[Key]
    rest: Key | None
    stopped: bool
    rows_read: int


class FilterCounts(Struct, frozen=True):
    """How many jobs the books know of the filter's queue and kind, by state."""

    of_queue: dict[JobStatus, int]
    fitting: int


Choose: TypeAlias = Callable[[Filter, FilterCounts | None], tuple[str, ...]]


def in_counters(wanted: Filter) -> bool:
    """Whether the books alone can count this filter."""
    return (
        wanted.tag is None
        and wanted.dedupe_key is None
        and wanted.error is None
        and wanted.payload is None
        and wanted.enqueued_from is None
        and wanted.enqueued_until is None
    )


def filter_counts(rows: Iterable[Sequence[object]], wanted: Filter) -> FilterCounts:
    """The books' view of a filter; ``of_queue`` leaves the kind out, as indexes do."""
    of_queue = dict.fromkeys(JobStatus, 0)
    fitting = 0
    for queue, kind, status, jobs in rows:
        if wanted.queue not in (None, queue):
            continue
        assert isinstance(jobs, int)
        of_queue[JobStatus(str(status))] += jobs
        if wanted.kind in (None, kind) and (not wanted.statuses or status in wanted.statuses):
            fitting += jobs
    return FilterCounts(of_queue, fitting)


def required_error_text(error: str) -> str:
    """What every text must hold in which the error as it is shown has this piece: shown texts are
    the stored ones with secrets replaced."""
    return max((part.strip("*") for part in error.split(HIDDEN)), key=len)


def required_payload_text(text: str) -> str:
    """What every payload must hold, in small letters, that has a text: its longest run of letters
    that every database can put into small ones."""
    return max("".join(c if c.isascii() else "\0" for c in text).lower().split("\0"), key=len)


def payload_contains(text: str | None, payload: bytes | None) -> bool:
    """Whether a payload, as it is shown, has a piece; letter case aside."""
    if text is None:
        return True
    needle = text.casefold()
    if payload is None or needle not in payload.decode().casefold():
        return False
    shown = msgspec.json.encode(redact.value(msgspec.json.decode(payload)))
    return needle in shown.decode().casefold()


def error_contains(error: str | None, last_error: str | None) -> bool:
    """Whether an error, as it is shown, has a piece."""
    return error is None or (last_error is not None and error in prose(last_error))


def find_keys(
    wanted: Filter, choose: Choose, *, limit: int, below: Key, exact: bool, counting: bool = False
) -> PageSteps:
    """Up to ``limit`` matching keys below one. ``choose`` names the sources to take keys from;
    ``exact``: whatever the sources give matches. A page may be larger than what is looked at
    otherwise; a count (``counting``) may not."""
    nothing = FoundKeys([], None, False, 0)
    counted: FilterCounts | None = None
    if wanted.queue is not None or wanted.kind is not None or wanted.statuses:
        rows: list[Sequence[object]] = yield ReadCounters()
        counted = filter_counts(rows, wanted)
        if not counted.fitting:
            return nothing
    below, floor = yield from _within(wanted, below)
    sources = choose(wanted, counted)
    found: list[Key] = []
    page = 0 if counting else limit
    most_of_all = max(MAX_ROWS_READ, page + 1)
    left = most_of_all
    for most in (max(_FIRST, page + 1), _SECOND, most_of_all):
        keys, rest = yield from _next_keys(sources, below, min(most, left))
        left -= len(keys)
        keys = [key for key in keys if key >= floor]
        if keys:
            found += keys if exact else (yield from _matching(wanted, keys))
        if len(found) > limit:
            last = found[limit - 1]
            unseen = sum(key < last for key in keys)
            return FoundKeys(found[:limit], last, False, most_of_all - left - unseen)
        if rest is None or rest <= floor:
            return FoundKeys(found, None, False, most_of_all - left)
        below = rest
        if left <= 0:
            break
    return FoundKeys(found, below, True, most_of_all - left)


def _next_keys(
    sources: tuple[str, ...], below: Key, most: int
) -> Generator[PageQuery, Any, tuple[list[Key], Key | None]]:
    """The next keys of all sources together, highest first, and where to go on."""
    parts: list[list[Key]] = yield ReadKeys(sources, below, most)
    # a source that has more may hold any key below its last one
    rest = max((part[-1] for part in parts if len(part) >= most), default=None)
    seen = {key for part in parts for key in part if rest is None or key >= rest}
    return sorted(seen, reverse=True), rest


def _matching(wanted: Filter, keys: Sequence[Key]) -> Generator[PageQuery, Any, list[Key]]:
    rows: list[tuple[Key, str | None, bytes | None]] = yield ReadMatching(keys)
    # Jobs fail of the same thing again and again; what is shown of it is found out once.
    judged: dict[str | None, bool] = {}
    fitting: list[Key] = []
    for key, error, payload in rows:
        fits = judged.get(error)
        if fits is None:
            fits = judged[error] = error_contains(wanted.error, error)
        if fits and payload_contains(wanted.payload, payload):
            fitting.append(key)
    return sorted(fitting, reverse=True)


def _within(wanted: Filter, below: Key) -> Generator[PageQuery, Any, tuple[Key, Key]]:
    """The keys between which jobs of the filter's times lie: (below, from)."""
    if wanted.enqueued_from is None and wanted.enqueued_until is None:
        return below, 0
    ends: tuple[Key, Key] | None = yield ReadKeyRange()
    if ends is None:
        return below, 0
    floor = 0
    if wanted.enqueued_until is not None:
        below = min(below, (yield from _first_since(wanted.enqueued_until + _SLACK, *ends)))
    if wanted.enqueued_from is not None:
        floor = yield from _first_since(wanted.enqueued_from - _SLACK, *ends)
    return below, floor


def _first_since(moment: Instant, low: Key, high: Key) -> Generator[PageQuery, Any, Key]:
    """The first key of the jobs that were enqueued at that moment or later, found by halving."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        found: tuple[Key, Instant] | None = yield ReadFirstKey(middle)
        if found is None or found[1] >= moment:
            high = middle
        else:
            low = found[0] + 1
    return low
