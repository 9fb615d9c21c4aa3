"""Bulk actions on jobs (cancel, retry, run now, delete), and the search by filter.

A filter is searched in descending order of keys, at most ``limit`` matching rows per call. So each
call makes progress, and no call meets jobs that were enqueued after the first one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct

from forge_jobs.backends.shared.pagination import MAX_ROWS_READ, error_contains, payload_contains
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant
from forge_jobs.core.selection import Acted, Cursor, Filter, Selection
from forge_jobs.core.status import RETRYABLE, TERMINAL, Attempts, Event, JobStatus

from . import dedupe_keys, transitions
from .rows import Row
from .tables import Tables

_DELETED = "deleted while it was running"


class Effect(Enum):
    """The effect of an action on one job."""

    CHANGED = "changed"
    REQUESTED = "requested"
    SKIPPED = "skipped"


def act(
    tables: Tables,
    selection: Selection,
    action: Callable[[Row], Effect],
    *,
    limit: int,
    after: Cursor | None,
) -> Acted:
    """Apply an action to the selected jobs, within the limit of one call."""
    if selection.ids and selection.filter is not None:
        raise BadOption("a selection takes ids or a filter, not both")
    effects = dict.fromkeys(Effect, 0)
    missing = 0
    following: Cursor | None = None
    if selection.filter is None:
        for public_id in dict.fromkeys(selection.ids):
            row = tables.find(public_id)
            if row is None:
                missing += 1
            else:
                effects[action(row)] += 1
    else:
        found = find_rows(tables, selection.filter, limit=limit, after=after)
        following = found.next
        for row in found.rows:
            effects[action(row)] += 1
    return Acted(
        changed=effects[Effect.CHANGED],
        requested=effects[Effect.REQUESTED],
        skipped=effects[Effect.SKIPPED],
        missing=missing,
        next=following,
    )


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
    for row in _rows_before(tables, after):
        if rows_read == max_rows:
            return RowPage(rows, f"{tables.tag:x}-{row.key + 1:x}", True, rows_read)
        rows_read += 1
        if matches(row, wanted):
            if len(rows) == max_matches:
                return RowPage(rows, f"{tables.tag:x}-{rows[-1].key:x}", False, last)
            rows.append(row)
            last = rows_read
    return RowPage(rows, None, False, rows_read)


def _rows_before(tables: Tables, after: Cursor | None) -> Iterator[Row]:
    """All rows with keys below the cursor, newest first."""
    position = len(tables.keys)
    if after is not None:
        position = bisect_left(tables.keys, _cursor_key(tables, after))
    while position:
        position -= 1
        yield tables.jobs[tables.keys[position]]


def cancel(tables: Tables, row: Row, reason: str, now: Instant) -> Effect:
    if row.status in TERMINAL:
        return Effect.SKIPPED
    if row.status is JobStatus.RUNNING:
        transitions.request_stop(tables, row, Event.CANCEL, now, reason)
        return Effect.REQUESTED
    transitions.cancel(tables, row, Event.CANCEL, now, reason)
    return Effect.CHANGED


def retry(tables: Tables, row: Row, now: Instant) -> Effect:
    if row.status not in RETRYABLE or dedupe_keys.blocked(tables, row, now):
        return Effect.SKIPPED
    row.run_at = now
    row.crashes = row.throttles = 0
    row.throttled_since = row.missing_since = None
    row.result = None
    if row.expired(now):
        # If kept, it would cancel the job again before it could be claimed.
        row.expires_at = None
    transitions.transition(
        tables, row, Event.RETRY, JobStatus.PENDING, now, attempts=Attempts.RESET
    )
    dedupe_keys.acquire(tables, row)
    return Effect.CHANGED


def run_now(tables: Tables, row: Row, now: Instant) -> Effect:
    if row.status not in (JobStatus.SCHEDULED, JobStatus.FAILED):
        return Effect.SKIPPED
    row.run_at = now
    transitions.transition(tables, row, Event.RUN_NOW, JobStatus.PENDING, now)
    return Effect.CHANGED


def delete(tables: Tables, row: Row, now: Instant) -> Effect:
    if row.status is JobStatus.RUNNING:
        transitions.request_stop(tables, row, Event.DELETE, now, _DELETED)
        return Effect.REQUESTED
    transitions.remove(tables, row, now)
    return Effect.CHANGED


def _cursor_key(tables: Tables, cursor: Cursor) -> int:
    tag, _, key = cursor.partition("-")
    try:
        if int(tag, 16) == tables.tag:
            return int(key, 16)
    except ValueError:
        pass
    raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")


def matches(row: Row, wanted: Filter) -> bool:
    """Whether a job matches a filter."""
    job = row.job
    return (
        (not wanted.statuses or row.status in wanted.statuses)
        and wanted.queue in (None, job.queue)
        and wanted.kind in (None, job.kind)
        and wanted.dedupe_key in (None, job.dedupe_key)
        and (wanted.tag is None or wanted.tag in job.tags)
        and error_contains(wanted.error, row.last_error)
        and payload_contains(wanted.payload, job.payload)
        and (wanted.enqueued_from is None or row.enqueued_at >= wanted.enqueued_from)
        and (wanted.enqueued_until is None or row.enqueued_at < wanted.enqueued_until)
    )
