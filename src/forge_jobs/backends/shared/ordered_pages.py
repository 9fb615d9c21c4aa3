"""Pages of jobs in the order of a time: due, ended, started.

Like ``pagination.scan`` this reads a bounded number of rows and is a generator whose queries a
backend runs. Sources are index ranges in the wanted order, one per queue or state; a backend merges
them.
"""

from collections.abc import Generator
from typing import Any, Final, TypeAlias

from msgspec import Struct

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant
from forge_jobs.core.selection import Cursor, Filter, Order

from .pagination import MAX_ROWS_READ, Key, MatchQuery, matching

# A batch for a page of an unfiltered list, then larger ones.
_BATCHES: Final = (250, 2_250, 2_500)
Position: TypeAlias = tuple[Instant, Key]
_FIRST: Final = (-(1 << 62), -1)
_LAST: Final = (1 << 62, (1 << 63) - 1)


class PositionsQuery(Struct, frozen=True):
    """Reads the next (time, key) pairs behind a position, at most ``limit``, in the order."""

    order: Order
    after: Position
    limit: int


OrderedQuery: TypeAlias = PositionsQuery | MatchQuery
OrderedScan: TypeAlias = Generator[OrderedQuery, Any, "OrderedResult"]


class OrderedResult(Struct, frozen=True):
    """Matching keys in order; ``resume`` is the position behind which the next page begins. The
    other fields are those of ``pagination.ScanResult``."""

    keys: list[Key]
    resume: Position | None
    stopped: bool
    rows_read: int


def scan_in_order(
    wanted: Filter, order: Order, *, limit: int, after: Position | None
) -> OrderedScan:
    """Find up to ``limit`` matching jobs behind a position."""
    found: list[Position] = []
    rows_read, position = 0, after or start(wanted, order)
    for batch in (*_BATCHES, max(limit + 1 - MAX_ROWS_READ, 0)):
        if not batch:
            break
        positions: list[Position] = yield PositionsQuery(order, position, batch)
        keys = set(
            (yield from matching(wanted, [key for _, key in positions])) if positions else ()
        )
        for count, one in enumerate(positions, 1):
            if one[1] not in keys:
                continue
            if len(found) == limit:
                return _result(found, found[-1], False, rows_read + count)
            found.append(one)
        rows_read += len(positions)
        if len(positions) < batch or _is_past(wanted, order, positions[-1][0]):
            return _result(found, None, False, rows_read)
        position = positions[-1]
    return _result(found, position, True, rows_read)


def start(wanted: Filter, order: Order) -> Position:
    """The position before the first job; with a filter by end, the bound of its range."""
    bound: Position | None = None
    if order is Order.ENDED_LAST and wanted.finished_until is not None:
        bound = (wanted.finished_until, -1)
    elif order is Order.ENDED_FIRST and wanted.finished_from is not None:
        bound = (wanted.finished_from, -1)
    return bound or (_LAST if order.descending else _FIRST)


def cursor(tag: int, order: Order, position: Position | None) -> Cursor | None:
    """The cursor of a position; it is for this order and store."""
    return None if position is None else f"{tag:x}-{position[1]:x}-{position[0]:x}~{order}"


def parse_cursor(tag: int, order: Order, text: Cursor | None) -> Position | None:
    """The position of a cursor; BadOption for that of another order or store."""
    if text is None:
        return None
    head, _, sort = text.partition("~")
    owner, key, time = (*head.split("-"), "", "", "")[:3]
    try:
        if int(owner, 16) == tag and sort == order:
            return int(time, 16), int(key, 16)
    except ValueError:
        pass
    raise BadOption(f"cursor {text!r} was not given out by this list: begin without one")


def _is_past(wanted: Filter, order: Order, time: Instant) -> bool:
    """Whether every further job lies outside the range of the filter."""
    if order is Order.ENDED_LAST:
        return wanted.finished_from is not None and time < wanted.finished_from
    return (
        order is Order.ENDED_FIRST
        and wanted.finished_until is not None
        and time >= wanted.finished_until
    )


def _result(
    found: list[Position], resume: Position | None, stopped: bool, rows_read: int
) -> OrderedResult:
    return OrderedResult([key for _, key in found], resume, stopped, rows_read)
