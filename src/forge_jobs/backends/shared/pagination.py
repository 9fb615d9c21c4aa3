"""Pagination of jobs, newest first, for filters that no single index answers.

``find_keys`` reads keys from sources (the primary key, or indexes of jobs in some states), merges
them in descending order and asks which of them match. It reads a bounded number of jobs, so that a
filter with few matches costs no more than one that matches everything; the next call continues
where it stopped. This module has no I/O: ``find_keys`` is a generator that yields queries, and a
backend sends it their results.
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
_FIRST_STEP: Final = 250
_SECOND_STEP: Final = 2_500
# Keys rise with time, but the clocks of two writers may differ a little.
_CLOCK_SLACK: Final = 60 * SECOND
MAX_KEY: Final = (1 << 63) - 1

Key: TypeAlias = int


class ReadCounters(Struct, frozen=True):
    """Query for the counters: (queue, kind, status, jobs)."""


class ReadKeyRange(Struct, frozen=True):
    """Query for the lowest and the highest key; None without jobs."""


class ReadFirstKey(Struct, frozen=True):
    """Query for the first job at or after a key: (key, enqueued_at); None without one."""

    key: Key


class ReadKeys(Struct, frozen=True):
    """Query for the ``max_keys`` highest keys of each source below a key, each highest first."""

    sources: tuple[str, ...]
    below: Key
    max_keys: int


class ReadMatching(Struct, frozen=True):
    """Query for the jobs among these that match the filter: (key, last error, payload), in any
    order. The payload may be None unless the filter has a condition on it."""

    keys: Sequence[Key]


PageQuery: TypeAlias = ReadCounters | ReadKeyRange | ReadFirstKey | ReadKeys | ReadMatching
PageSteps: TypeAlias = Generator[PageQuery, Any, "FoundKeys"]


class FoundKeys(Struct, frozen=True):
    """Matching keys, highest first.

    ``rest``: keys below this one were not read; None when nothing is left. ``stopped``: the bound
    on rows was reached before the page was full. ``rows_read``: how many jobs were read.
    """

    keys: list[Key]
    rest: Key | None
    stopped: bool
    rows_read: int


class FilterCounts(Struct, frozen=True):
    """What the counters say about a filter: jobs of its queue by state (of all kinds, as indexes
    have them), and ``fitting``, the number that match its queue, kind and states."""

    of_queue: dict[JobStatus, int]
    fitting: int


Choose: TypeAlias = Callable[[Filter, FilterCounts | None], tuple[str, ...]]


def in_counters(wanted: Filter) -> bool:
    """Whether the counters alone can count this filter."""
    return (
        wanted.tag is None
        and wanted.dedupe_key is None
        and wanted.error is None
        and wanted.payload is None
        and wanted.enqueued_from is None
        and wanted.enqueued_until is None
    )


def filter_counts(rows: Iterable[Sequence[object]], wanted: Filter) -> FilterCounts:
    """The counters that concern a filter."""
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
    """A text that a stored error must contain if the displayed one contains ``error``. A displayed
    text is the stored one with secrets replaced."""
    return max((part.strip("*") for part in error.split(HIDDEN)), key=len)


def required_payload_text(text: str) -> str:
    """A lower-case text that a payload must contain if it contains ``text``: its longest run of
    ASCII, which every database can convert to lower case."""
    return max("".join(c if c.isascii() else "\0" for c in text).lower().split("\0"), key=len)


def payload_contains(text: str | None, payload: bytes | None) -> bool:
    """Whether the displayed payload contains a text, case-insensitive."""
    if text is None:
        return True
    needle = text.casefold()
    if payload is None or needle not in payload.decode().casefold():
        return False
    shown = msgspec.json.encode(redact.value(msgspec.json.decode(payload)))
    return needle in shown.decode().casefold()


def error_contains(error: str | None, last_error: str | None) -> bool:
    """Whether the displayed error contains a text."""
    return error is None or (last_error is not None and error in prose(last_error))


def find_keys(
    wanted: Filter, choose: Choose, *, limit: int, below: Key, exact: bool, counting: bool = False
) -> PageSteps:
    """Up to ``limit`` matching keys below a key.

    ``choose`` names the sources to read keys from. ``exact``: every key of the sources matches. At
    most ``MAX_ROWS_READ`` jobs are read; a page with a higher ``limit`` reads more, a count
    (``counting``) does not.
    """
    nothing = FoundKeys([], None, False, 0)
    counted: FilterCounts | None = None
    if wanted.queue is not None or wanted.kind is not None or wanted.statuses:
        rows: list[Sequence[object]] = yield ReadCounters()
        counted = filter_counts(rows, wanted)
        if not counted.fitting:
            return nothing
    below, first = yield from _key_range(wanted, below)
    sources = choose(wanted, counted)
    found: list[Key] = []
    page = 0 if counting else limit
    max_rows = max(MAX_ROWS_READ, page + 1)
    left = max_rows
    for max_keys in (max(_FIRST_STEP, page + 1), _SECOND_STEP, max_rows):
        keys, rest = yield from _next_keys(sources, below, min(max_keys, left))
        left -= len(keys)
        keys = [key for key in keys if key >= first]
        if keys:
            found += keys if exact else (yield from _matching(wanted, keys))
        if len(found) > limit:
            last = found[limit - 1]
            unseen = sum(key < last for key in keys)
            return FoundKeys(found[:limit], last, False, max_rows - left - unseen)
        if rest is None or rest <= first:
            return FoundKeys(found, None, False, max_rows - left)
        below = rest
        if left <= 0:
            break
    return FoundKeys(found, below, True, max_rows - left)


def _next_keys(
    sources: tuple[str, ...], below: Key, max_keys: int
) -> Generator[PageQuery, Any, tuple[list[Key], Key | None]]:
    """The next keys of all sources, highest first, and the key below which to continue."""
    parts: list[list[Key]] = yield ReadKeys(sources, below, max_keys)
    # A source that has more may have any key below its last one.
    rest = max((part[-1] for part in parts if len(part) >= max_keys), default=None)
    seen = {key for part in parts for key in part if rest is None or key >= rest}
    return sorted(seen, reverse=True), rest


def _matching(wanted: Filter, keys: Sequence[Key]) -> Generator[PageQuery, Any, list[Key]]:
    rows: list[tuple[Key, str | None, bytes | None]] = yield ReadMatching(keys)
    # Many jobs fail with the same error; redact and compare it once.
    known: dict[str | None, bool] = {}
    fitting: list[Key] = []
    for key, error, payload in rows:
        fits = known.get(error)
        if fits is None:
            fits = known[error] = error_contains(wanted.error, error)
        if fits and payload_contains(wanted.payload, payload):
            fitting.append(key)
    return sorted(fitting, reverse=True)


def _key_range(wanted: Filter, below: Key) -> Generator[PageQuery, Any, tuple[Key, Key]]:
    """The range of keys of jobs that were enqueued in the filter's time range: (below, from)."""
    if wanted.enqueued_from is None and wanted.enqueued_until is None:
        return below, 0
    key_range: tuple[Key, Key] | None = yield ReadKeyRange()
    if key_range is None:
        return below, 0
    first = 0
    if wanted.enqueued_until is not None:
        below = min(
            below, (yield from _first_since(wanted.enqueued_until + _CLOCK_SLACK, *key_range))
        )
    if wanted.enqueued_from is not None:
        first = yield from _first_since(wanted.enqueued_from - _CLOCK_SLACK, *key_range)
    return below, first


def _first_since(instant: Instant, low: Key, high: Key) -> Generator[PageQuery, Any, Key]:
    """The first key of the jobs enqueued at that instant or later, by binary search."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        found: tuple[Key, Instant] | None = yield ReadFirstKey(middle)
        if found is None or found[1] >= instant:
            high = middle
        else:
            low = found[0] + 1
    return low
