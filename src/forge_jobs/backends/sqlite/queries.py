"""Reads jobs: one by id, pages by filter, states and results for waiting callers."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, assert_never

from forge_jobs.backends.shared import ordered_pages, pagination
from forge_jobs.backends.shared.ordered_pages import OrderedResult, Position, PositionsQuery
from forge_jobs.backends.shared.pagination import (
    CountersQuery,
    FilterCounts,
    KeyProbe,
    KeyRangeQuery,
    KeysQuery,
    MatchQuery,
    ScanResult,
)
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.backends.shared.tracebacks import StoredTraceback, with_tracebacks
from forge_jobs.core import ids
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import Claim, JobRecord, LogLine, shown_progress
from forge_jobs.core.selection import Cursor, Filter, Order, Page, check_order
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Owned, Peek

from .counters import SQL as COUNTERS_SQL
from .counters import Execute
from .json_text import as_json
from .rows import HAS_STEPS, read_details, read_options

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "queries.sql")

_MAX_KEY: Final = (1 << 63) - 1
_INDEXED: Final = frozenset(
    {
        JobStatus.FAILED,
        JobStatus.HELD,
        JobStatus.SUSPENDED,
        JobStatus.DEAD,
        JobStatus.CANCELLED,
    }
)
# In the index of due times beside scheduled jobs.
_ALSO_DUE: Final = (JobStatus.FAILED, JobStatus.SUSPENDED)
_DUE_LATER: Final = (JobStatus.SCHEDULED, *_ALSO_DUE)
# Sorting this many keys takes a few milliseconds.
_MAX_SORTED: Final = 20_000
_LAST_QUEUE: Final = chr(0x10FFFF)


def get(connection: sqlite3.Connection, job_id: str, tag: int) -> JobRecord | None:
    """One job by its public id or the end of it, with the tracebacks of its errors."""
    record = _short_record(connection, job_id, tag) if ids.is_short(job_id) else None
    if record is None:
        row_key = ids.row_key(job_id, tag)
        if row_key is None or row_key[0] > _MAX_KEY:
            return None
        found = connection.execute(SQL["job"], (row_key[0],)).fetchone()
        if found is None:
            return None
        record = _record(found, tag)
        if record.enqueued_at // 1000 != row_key[1]:
            return None
    if not record.errors:
        return record
    stored = connection.execute(SQL["tracebacks"], (record.key,)).fetchall()
    return with_tracebacks(record, [StoredTraceback(*row) for row in stored])


def _short_record(connection: sqlite3.Connection, end: str, tag: int) -> JobRecord | None:
    """The newest job whose id ends so."""
    _, high = connection.execute(SQL["key_range"]).fetchone()
    keys = ids.short_keys(end, tag, high or 0)
    found = connection.execute(SQL["jobs"], (as_json(keys),)).fetchone()
    return None if found is None else _record(found, tag)


def page(
    connection: sqlite3.Connection,
    wanted: Filter,
    *,
    limit: int,
    after: Cursor | None,
    tag: int,
    order: Order = Order.NEWEST,
) -> Page:
    """Jobs that match, in an order."""
    check_order(wanted, order)
    if order is not Order.NEWEST:
        return _ordered_page(connection, wanted, limit, after, tag, order)
    found = newest(connection.execute, wanted, limit=limit, after=after, tag=tag)
    rows = connection.execute(SQL["jobs"], (as_json(found.keys),)).fetchall()
    jobs = tuple(_record(row, tag) for row in rows)
    return Page(jobs, cursor(found, tag), found.stopped, found.rows_read)


def _ordered_page(
    connection: sqlite3.Connection,
    wanted: Filter,
    limit: int,
    after: Cursor | None,
    tag: int,
    order: Order,
) -> Page:
    place = ordered_pages.parse_cursor(tag, order, after)
    steps = ordered_pages.scan_in_order(wanted, order, limit=max(limit, 1), after=place)
    reply: Any = None
    try:
        while True:
            query = steps.send(reply)
            match query:
                case PositionsQuery():
                    reply = _positions(connection.execute, wanted, query)
                case MatchQuery(keys):
                    values = (as_json(keys), *_values(wanted))
                    reply = connection.execute(SQL["matching"], values).fetchall()
                case _:
                    assert_never(query)
    except StopIteration as end:
        found: OrderedResult = end.value
    rows = connection.execute(SQL["jobs"], (as_json(found.keys),)).fetchall()
    records = {record.key: record for record in (_record(row, tag) for row in rows)}
    jobs = tuple(records[key] for key in found.keys)
    return Page(
        jobs, ordered_pages.cursor(tag, order, found.resume), found.stopped, found.rows_read
    )


def _positions(execute: Execute, wanted: Filter, query: PositionsQuery) -> list[Position]:
    """The next places of all queues or states, merged."""
    order, parts = query.order, wanted.statuses
    if order.time == "due":
        counts = execute(COUNTERS_SQL["count_by_kind"]).fetchall()
        queues = {row[0] for row in counts if row[2] in _DUE_LATER and row[3]}
        parts = queues if wanted.queue is None else queues & {wanted.queue}
    elif order.time == "started":
        parts = ("",)
    statement = SQL[f"positions_{order.time}{'_down' if order.descending else ''}"]
    found = [
        (time, key)
        for part in parts
        for time, key in execute(statement, (*query.after, part, query.limit))
    ]
    return sorted(found, reverse=order.descending)[: query.limit]


def newest(
    execute: Execute, wanted: Filter, *, limit: int, after: Cursor | None, tag: int
) -> ScanResult:
    """Keys of up to ``limit`` matching jobs, newest first."""
    below = _MAX_KEY if after is None else _parse_cursor(after, tag)
    return _scan(execute, wanted, max(limit, 1), below)


def cursor(found: ScanResult, tag: int) -> Cursor | None:
    """Where the next page begins."""
    return None if found.resume_below is None else f"{tag:x}-{found.resume_below:x}"


def count(execute: Execute, wanted: Filter, cap: int) -> CappedCount:
    """How many jobs match, counted up to ``cap``."""
    if pagination.is_counted(wanted):
        counted = pagination.count_filter(execute(COUNTERS_SQL["count_by_kind"]).fetchall(), wanted)
        return CappedCount(min(counted.matching, cap), counted.matching > cap)
    found = _scan(execute, wanted, cap, _MAX_KEY, counting=True)
    return CappedCount(len(found.keys), found.resume_below is not None)


def _scan(
    execute: Execute, wanted: Filter, limit: int, below: int, *, counting: bool = False
) -> ScanResult:
    values = _values(wanted)
    queues = (wanted.queue or "", wanted.queue or _LAST_QUEUE)
    extra_values: dict[str, tuple[object, ...]] = {
        "dedupe_key": (wanted.dedupe_key,), "error_group": (wanted.group,),
        "parent": (wanted.parent,),
        "due": queues, "claimable": queues, "track": queues,
        **{status: (status,) for status in _INDEXED},
    }  # fmt: skip
    steps = pagination.scan(
        wanted, _sources, limit=limit, below=below, exact=wanted == Filter(), counting=counting
    )
    reply: Any = None
    try:
        while True:
            query = steps.send(reply)
            match query:
                case CountersQuery():
                    reply = execute(COUNTERS_SQL["count_by_kind"]).fetchall()
                case KeyRangeQuery():
                    low, high = execute(SQL["key_range"]).fetchone()
                    reply = None if low is None else (low, high)
                case KeyProbe(key):
                    reply = execute(SQL["at_or_after"], (key,)).fetchone()
                case KeysQuery(sources, upper, batch):
                    reply = [
                        [key for (key,) in execute(
                            SQL[f"keys_of_{'status' if source in _INDEXED else source}"],
                            (upper, batch, *extra_values.get(source, ())),
                        )]
                        for source in sources
                    ]  # fmt: skip
                case MatchQuery(keys):
                    reply = execute(SQL["matching"], (as_json(keys), *values)).fetchall()
                case _:
                    assert_never(query)
    except StopIteration as end:
        return end.value


def _sources(wanted: Filter, counted: FilterCounts | None) -> tuple[str, ...]:
    """The sources of keys: indexes of the wanted states, if each of them has a suitable one."""
    if wanted.dedupe_key is not None:
        return ("dedupe_key",)
    if wanted.parent is not None:
        return ("parent",)
    if wanted.group is not None:
        return ("error_group",)
    if counted is None or not wanted.statuses:
        return ("all",)
    sources: list[str] = []
    for status in dict.fromkeys(wanted.statuses):
        if status in _INDEXED:
            sources.append(status.value)
        elif status is JobStatus.RUNNING:
            sources.append("running")
        elif counted.by_status[status] > _MAX_SORTED or status is JobStatus.DONE:
            return ("all",)
        elif status is JobStatus.PENDING:
            sources += ("new", "claimable", "track")
        elif max(counted.by_status[other] for other in _ALSO_DUE) > _MAX_SORTED:
            return ("all",)
        else:
            sources.append("due")
    return tuple(sources)


def keys_of(execute: Execute, job_ids: Sequence[str], tag: int) -> list[int | None]:
    """The keys of public ids; None for an id that is unknown, forged or of another store."""
    row_keys = [ids.row_key(job_id, tag) for job_id in job_ids]
    wanted = [row_key[0] for row_key in row_keys if row_key is not None and row_key[0] <= _MAX_KEY]
    times = dict(execute(SQL["enqueued_at"], (as_json(wanted),)).fetchall())
    return [
        None if row_key is None or times.get(row_key[0], -1) // 1000 != row_key[1] else row_key[0]
        for row_key in row_keys
    ]


def peek(connection: sqlite3.Connection, job_ids: Sequence[str], tag: int) -> list[Peek | None]:
    """State and result of many jobs at once."""
    row_keys = [ids.row_key(job_id, tag) for job_id in job_ids]
    wanted = [row_key[0] for row_key in row_keys if row_key is not None and row_key[0] <= _MAX_KEY]
    rows = {row[0]: row[1:] for row in connection.execute(SQL["peek"], (as_json(wanted),))}
    found: list[Peek | None] = []
    for row_key in row_keys:
        row = None if row_key is None else rows.get(row_key[0])
        if row is None or row_key is None or row[1] // 1000 != row_key[1]:
            found.append(None)
        else:
            found.append(Peek(JobStatus(row[0]), row[2], row[3]))
    return found


def owned(connection: sqlite3.Connection, owner: int) -> list[Owned]:
    """All running rows of a process."""
    rows = connection.execute(SQL["owned"], (owner,)).fetchall()
    return [
        Owned(Claim(key, epoch), exchange, bool(started)) for key, epoch, exchange, started in rows
    ]


def logs(connection: sqlite3.Connection, job_id: str, tag: int) -> list[LogLine]:
    """The log lines of a job."""
    (key,) = keys_of(connection.execute, [job_id], tag)
    if key is None:
        return []
    return [LogLine(*row) for row in connection.execute(SQL["logs"], (key,)).fetchall()]


def _values(wanted: Filter) -> tuple[object, ...]:
    return (
        wanted.queue, wanted.kind, as_json(wanted.statuses) if wanted.statuses else None,
        wanted.tag, wanted.dedupe_key,
        None if wanted.error is None else pagination.error_needle(wanted.error),
        wanted.enqueued_from, wanted.enqueued_until,
        pagination.payload_needle(wanted), wanted.finished_from, wanted.finished_until,
        None if wanted.owners is None else as_json(wanted.owners),
        wanted.group,
        wanted.parent,
    )  # fmt: skip


def _parse_cursor(cursor: Cursor, tag: int) -> int:
    owner, _, key = cursor.partition("-")
    try:
        if int(owner, 16) == tag and 0 <= int(key, 16) <= _MAX_KEY:
            return int(key, 16)
    except ValueError:
        pass
    raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")


def _record(row: tuple[Any, ...], tag: int) -> JobRecord:
    (
        key, status, queue, kind, priority, run_at, epoch, attempts, max_attempts, enqueued_at,
        owner, started_at, finished_at, options_text, details_text, last_error, dedupe_key,
        limit_key, lane, bucket, slow_path, result, payload,
    ) = row  # fmt: skip
    options, details, status = (
        read_options(options_text), read_details(details_text), JobStatus(status)
    )  # fmt: skip
    return JobRecord(
        key=key,
        id=ids.job_id(key, enqueued_at, tag),
        kind=kind,
        queue=queue,
        status=status,
        payload=payload,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        epoch=epoch,
        enqueued_at=enqueued_at,
        run_at=run_at,
        # The column keeps the last owner; the record shows only a current one.
        owner=owner if status is JobStatus.RUNNING else None,
        started_at=started_at,
        finished_at=finished_at,
        expires_at=options.expires_at,
        timeout_s=options.timeout_s,
        last_error=last_error,
        errors=details.errors,
        result=result,
        progress=shown_progress(status, details.progress),
        progress_note=details.progress_note,
        tags=options.tags,
        dedupe_key=dedupe_key,
        dedupe_for_s=options.dedupe_for_s,
        unique_while=options.unique_while,
        limit_key=limit_key,
        lane=lane,
        order=options.order,
        limit_bucket=bucket,
        crashes=details.crashes,
        throttles=details.throttles,
        throttled_since=details.throttled_since,
        missing_since=details.missing_since,
        cancel_requested_at=details.cancel_at,
        on_dead=options.on_dead,
        trace=options.trace,
        options=options.rare,
        has_steps=bool(slow_path & HAS_STEPS),
        failed_runs=details.failed_runs,
        last_owner=owner,
    )
