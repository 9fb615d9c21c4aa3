"""The search by filter of a row-wise store, newest first.

A filter is searched in descending order of keys, at most ``limit`` matching rows per call. So each
call makes progress, and no call meets jobs that were enqueued after the first one.
"""

from msgspec import Struct

from forge_jobs.backends.shared import ordered_pages
from forge_jobs.backends.shared.pagination import MAX_ROWS_READ, error_matches, payload_matches
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant
from forge_jobs.core.parent import PARENT
from forge_jobs.core.selection import Cursor, Filter, Order, check_order
from forge_jobs.core.status import JobStatus

from .rows import Row
from .tables import Tables


class RowPage(Struct, frozen=True):
    """Matching rows, newest first. The other fields are those of ``core.selection.Page``."""

    rows: list[Row]
    next: Cursor | None
    stopped: bool
    rows_read: int


def find_rows(
    tables: Tables,
    wanted: Filter,
    *,
    limit: int,
    after: Cursor | None = None,
    counting: bool = False,
) -> RowPage:
    """Up to ``limit`` matching rows, newest first.

    Reads at most ``MAX_ROWS_READ`` rows, like ``backends.shared.pagination``. Only a page with a
    higher ``limit`` reads more; a count (``counting``) does not.
    """
    max_matches = max(limit, 1)
    max_rows = MAX_ROWS_READ if counting else max(MAX_ROWS_READ, max_matches + 1)
    rows: list[Row] = []
    rows_read = last = 0
    below = None if after is None else _cursor_key(tables, after)
    newest, group = tables.index.newest, wanted.group
    for key in newest(below) if group is None else tables.index.of_error_group(group, below):
        if rows_read == max_rows:
            return RowPage(rows, f"{tables.tag:x}-{key + 1:x}", True, rows_read)
        rows_read += 1
        row = tables.jobs[key]
        if matches(row, wanted):
            if len(rows) == max_matches:
                return RowPage(rows, f"{tables.tag:x}-{rows[-1].key:x}", False, last)
            rows.append(row)
            last = rows_read
    return RowPage(rows, None, False, rows_read)


def page_of_rows(
    tables: Tables, wanted: Filter, *, limit: int, after: Cursor | None, order: Order
) -> RowPage:
    """A page in an order. There is no index by time: every matching row is looked at."""
    check_order(wanted, order)
    if order is Order.NEWEST:
        return find_rows(tables, wanted, limit=limit, after=after)
    place = ordered_pages.parse_cursor(tables.tag, order, after)
    places = sorted(
        (
            (_time_of(row, order), row.key)
            for row in (tables.jobs[key] for key in tables.index.newest())
            if matches(row, wanted)
        ),
        reverse=order.descending,
    )
    if place is not None:
        places = [one for one in places if (one < place if order.descending else one > place)]
    chosen = places[: max(limit, 1)]
    resume = chosen[-1] if len(places) > len(chosen) else None
    rows = [tables.jobs[key] for _, key in chosen]
    return RowPage(rows, ordered_pages.cursor(tables.tag, order, resume), False, len(rows))


def _time_of(row: Row, order: Order) -> Instant:
    by = {"due": row.run_at, "ended": row.finished_at, "started": row.started_at}
    return by[order.time] or 0


def matches(row: Row, wanted: Filter) -> bool:
    """Whether a job matches a filter."""
    job = row.job
    return (
        (not wanted.statuses or row.status in wanted.statuses)
        and wanted.queue in (None, job.queue)
        and wanted.kind in (None, job.kind)
        and wanted.dedupe_key in (None, job.dedupe_key)
        and (wanted.parent is None or (job.options or {}).get(PARENT) == wanted.parent)
        and wanted.group in (None, row.error_group)
        and (wanted.tag is None or wanted.tag in job.tags)
        and error_matches(wanted.error, row.last_error)
        and payload_matches(wanted, job.payload)
        and (wanted.enqueued_from is None or row.enqueued_at >= wanted.enqueued_from)
        and (wanted.enqueued_until is None or row.enqueued_at < wanted.enqueued_until)
        and _within(row.finished_at, wanted.finished_from, wanted.finished_until)
        and (
            wanted.owners is None
            or (row.status is JobStatus.RUNNING and row.owner in wanted.owners)
        )
    )


def _within(at: Instant | None, start: Instant | None, until: Instant | None) -> bool:
    """Whether an end lies in a range; a job that has not ended is in the open range alone."""
    if start is None and until is None:
        return True
    return at is not None and (start is None or at >= start) and (until is None or at < until)


def _cursor_key(tables: Tables, cursor: Cursor) -> int:
    tag, _, key = cursor.partition("-")
    try:
        if int(tag, 16) == tables.tag:
            return int(key, 16)
    except ValueError:
        pass
    raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")
