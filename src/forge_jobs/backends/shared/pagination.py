"""Scans jobs from the newest to the oldest, for filters that no single index answers.

A scan reads keys from sources (the primary key, or indexes that hold jobs of some states), merges
them in order and asks which of them match. It reads a bounded number of rows, so a filter that
matches almost nothing costs no more than one that matches everything; the next page resumes where
the scan stopped. This module holds the algorithm only: it is a generator, and a backend runs the
queries that it yields.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.redact import HIDDEN, prose

MAX_ROWS_READ: Final = 5_000
_FIRST_BATCH: Final = 250
_SECOND_BATCH: Final = 2_500
# Keys rise with time, but the clocks of two writers may differ a little.
_CLOCK_SLACK: Final = 60 * SECOND
MAX_KEY: Final = (1 << 63) - 1

Key: TypeAlias = int


class CountersQuery(Struct, frozen=True):
    """Reads the counters: (queue, kind, status, jobs)."""


class KeyRangeQuery(Struct, frozen=True):
    """Reads the lowest and the highest key; the reply is None if there are no jobs."""


class KeyProbe(Struct, frozen=True):
    """Reads the first job at or above a key: (key, enqueued_at)."""

    key: Key


class KeysQuery(Struct, frozen=True):
    """Reads the ``limit`` highest keys of each source that are less than ``below``, in descending
    order."""

    sources: tuple[str, ...]
    below: Key
    limit: int


class MatchQuery(Struct, frozen=True):
    """Selects those of the given jobs that match the filter: (key, last error, payload), in any
    order. The payload may be None unless the filter searches in it."""

    keys: Sequence[Key]


ScanQuery: TypeAlias = CountersQuery | KeyRangeQuery | KeyProbe | KeysQuery | MatchQuery
Scan: TypeAlias = Generator[ScanQuery, Any, "ScanResult"]


class ScanResult(Struct, frozen=True):
    """Matching keys in descending order.

    ``resume_below`` is the exclusive upper bound of the keys that were not read; None at the end of
    the table. ``stopped`` means that the scan reached its bound on rows, not a full page.
    """

    keys: list[Key]
    resume_below: Key | None
    stopped: bool
    rows_read: int


class FilterCounts(Struct, frozen=True):
    """What the counters know about a filter. ``by_status`` counts the jobs of the filter's queue,
    ``matching`` those that also have its kind and states."""

    by_status: dict[JobStatus, int]
    matching: int


ChooseSources: TypeAlias = Callable[[Filter, FilterCounts | None], tuple[str, ...]]


def is_counted(wanted: Filter) -> bool:
    """Whether the counters alone can count the jobs of this filter."""
    return wanted == Filter(queue=wanted.queue, kind=wanted.kind, statuses=wanted.statuses)


def count_filter(rows: Iterable[Sequence[object]], wanted: Filter) -> FilterCounts:
    """Sums counters for a filter. ``by_status`` ignores the kind, because the indexes do."""
    by_status = dict.fromkeys(JobStatus, 0)
    matching = 0
    for queue, kind, status, jobs in rows:
        if wanted.queue not in (None, queue):
            continue
        assert isinstance(jobs, int)
        by_status[JobStatus(str(status))] += jobs
        if wanted.kind in (None, kind) and (not wanted.statuses or status in wanted.statuses):
            matching += jobs
    return FilterCounts(by_status, matching)


def error_needle(error: str) -> str:
    """A part of the searched text that every stored error with a match must contain.

    Users search in errors as they are shown, with secrets replaced; the replaced parts cannot be
    searched for in the stored text.
    """
    return max((part.strip("*") for part in error.split(HIDDEN)), key=len)


def payload_needle(wanted: Filter) -> str | None:
    """A part of the searched texts that every stored payload with a match must contain, in lower
    case: the longest run of ASCII characters, which every database can convert to lower case. None
    if the filter does not search in payloads."""
    if not wanted.reads_payloads:
        return None
    runs = _ascii_runs(wanted.payload or "")
    for _, text in wanted.arguments:
        # JSON escapes these two; others that it escapes are not printable
        runs += _ascii_runs(text.replace('"', "\0").replace("\\", "\0"))
    return max(runs, key=len, default="")


def _ascii_runs(text: str) -> list[str]:
    plain = "".join(c if c.isascii() and (c.isprintable() or c == "\0") else "\0" for c in text)
    return plain.lower().split("\0")


def payload_matches(wanted: Filter, payload: bytes | None) -> bool:
    """Whether a payload, as it is shown to users, has the text and the arguments of a filter;
    ignores case."""
    if not wanted.reads_payloads:
        return True
    needle = "" if wanted.payload is None else wanted.payload.casefold()
    if payload is None or needle not in payload.decode().casefold():
        return False
    shown = redact.value(msgspec.json.decode(payload))
    if needle and needle not in msgspec.json.encode(shown).decode().casefold():
        return False
    return all(
        _value_matches(shown, name.split("."), text.casefold()) for name, text in wanted.arguments
    )


def _value_matches(value: object, path: list[str], text: str) -> bool:
    match value:
        case list():
            return any(_value_matches(item, path, text) for item in cast("list[object]", value))
        case dict() if path:
            fields = cast("dict[str, object]", value)
            return path[0] in fields and _value_matches(fields[path[0]], path[1:], text)
        case str() if not path:
            return text in value.casefold()
        case None | bool() | int() | float() if not path:
            return msgspec.json.encode(value).decode() == text
        case _:
            return False


def error_matches(error: str | None, last_error: str | None) -> bool:
    """Whether an error, as it is shown to users, contains a text."""
    return error is None or (last_error is not None and error in prose(last_error))


def scan(
    wanted: Filter,
    choose: ChooseSources,
    *,
    limit: int,
    below: Key,
    exact: bool,
    counting: bool = False,
) -> Scan:
    """Find up to ``limit`` matching keys that are less than ``below``.

    ``choose`` selects the sources. ``exact`` means that every key of the sources matches, so no
    match query is needed. A page may be larger than ``MAX_ROWS_READ``; a count (``counting``) reads
    no more rows than that.
    """
    empty = ScanResult([], None, False, 0)
    counted: FilterCounts | None = None
    if wanted.queue is not None or wanted.kind is not None or wanted.statuses:
        rows: list[Sequence[object]] = yield CountersQuery()
        counted = count_filter(rows, wanted)
        if not counted.matching:
            return empty
    below, lowest = yield from _key_bounds(wanted, below)
    sources = choose(wanted, counted)
    found: list[Key] = []
    page_size = 0 if counting else limit
    max_rows = max(MAX_ROWS_READ, page_size + 1)
    left = max_rows
    for batch in (max(_FIRST_BATCH, page_size + 1), _SECOND_BATCH, max_rows):
        keys, resume_below = yield from _next_keys(sources, below, min(batch, left))
        left -= len(keys)
        keys = [key for key in keys if key >= lowest]
        if keys:
            found += keys if exact else (yield from matching(wanted, keys))
        if len(found) > limit:
            last = found[limit - 1]
            unused = sum(key < last for key in keys)
            return ScanResult(found[:limit], last, False, max_rows - left - unused)
        if resume_below is None or resume_below <= lowest:
            return ScanResult(found, None, False, max_rows - left)
        below = resume_below
        if left <= 0:
            break
    return ScanResult(found, below, True, max_rows - left)


def _next_keys(
    sources: tuple[str, ...], below: Key, limit: int
) -> Generator[ScanQuery, Any, tuple[list[Key], Key | None]]:
    """The next keys of all sources in descending order, and where to resume."""
    parts: list[list[Key]] = yield KeysQuery(sources, below, limit)
    # A source that returned a full batch may have any key below the last one it returned.
    resume_below = max((part[-1] for part in parts if len(part) >= limit), default=None)
    seen = {key for part in parts for key in part if resume_below is None or key >= resume_below}
    return sorted(seen, reverse=True), resume_below


def matching(wanted: Filter, keys: Sequence[Key]) -> Generator[MatchQuery, Any, list[Key]]:
    """Those of the keys that match the filter, in descending order."""
    rows: list[tuple[Key, str | None, bytes | None]] = yield MatchQuery(keys)
    # Many jobs fail with the same error; each distinct text is compared once.
    compared: dict[str | None, bool] = {}
    found: list[Key] = []
    for key, error, payload in rows:
        matches = compared.get(error)
        if matches is None:
            matches = compared[error] = error_matches(wanted.error, error)
        if matches and payload_matches(wanted, payload):
            found.append(key)
    return sorted(found, reverse=True)


def _key_bounds(wanted: Filter, below: Key) -> Generator[ScanQuery, Any, tuple[Key, Key]]:
    """Bounds on the keys of jobs that were enqueued in the filter's time range: (exclusive upper
    bound, inclusive lower bound)."""
    if wanted.enqueued_from is None and wanted.enqueued_until is None:
        return below, 0
    key_range: tuple[Key, Key] | None = yield KeyRangeQuery()
    if key_range is None:
        return below, 0
    lowest = 0
    if wanted.enqueued_until is not None:
        until = wanted.enqueued_until + _CLOCK_SLACK
        below = min(below, (yield from _first_key_since(until, *key_range)))
    if wanted.enqueued_from is not None:
        lowest = yield from _first_key_since(wanted.enqueued_from - _CLOCK_SLACK, *key_range)
    return below, lowest


def _first_key_since(moment: Instant, low: Key, high: Key) -> Generator[ScanQuery, Any, Key]:
    """The first key of the jobs enqueued at that moment or later, by binary search."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        found: tuple[Key, Instant] | None = yield KeyProbe(middle)
        if found is None or found[1] >= moment:
            high = middle
        else:
            low = found[0] + 1
    return low
