"""Reading jobs: one by id, pages by filter, results for whoever waits."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from forge_jobs.backends.sqltext import SqlText
from forge_jobs.core import ids
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import Claim, JobRecord, LogLine
from forge_jobs.core.select import Cursor, Filter, Page
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Owned, Peek

from .books import Execute
from .moves import as_json
from .rows import read_options, read_state

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "looks.sql")

_KEY_MOST: Final = (1 << 63) - 1
_ODD: Final = frozenset({JobStatus.FAILED, JobStatus.HELD, JobStatus.DEAD, JobStatus.CANCELLED})
_RUNNING: Final = frozenset({JobStatus.RUNNING})


def get(connection: sqlite3.Connection, job_id: str, tag: int) -> JobRecord | None:
    """One job by its public id."""
    place = ids.row_key(job_id, tag)
    if place is None or place[0] > _KEY_MOST:
        return None
    found = connection.execute(SQL["job"], (place[0],)).fetchone()
    if found is None:
        return None
    record = _record(found, tag)
    return record if record.enqueued_at // 1000 == place[1] else None


def page(
    connection: sqlite3.Connection, wanted: Filter, limit: int, after: Cursor | None, tag: int
) -> Page:
    """Jobs that match, newest first."""
    keys, following = newest(connection.execute, wanted, limit=limit, after=after, tag=tag)
    rows = connection.execute(SQL["jobs"], (as_json(keys),)).fetchall()
    return Page(tuple(_record(row, tag) for row in rows), following)


def newest(
    execute: Execute, wanted: Filter, *, limit: int, after: Cursor | None, tag: int
) -> tuple[list[int], Cursor | None]:
    """Keys of up to ``limit`` matching jobs, newest first, and the cursor to the rest."""
    most = max(limit, 1)
    below = _KEY_MOST if after is None else _position(after, tag)
    found = execute(_statement(wanted), _values(wanted, below, most + 1)).fetchall()
    keys = [key for (key,) in found[:most]]
    return keys, f"{tag:x}-{keys[-1]:x}" if len(found) > most else None


def count(execute: Execute, wanted: Filter, most: int) -> int:
    """How many jobs match, looking at no more than ``most`` of them."""
    return len(execute(_statement(wanted), _values(wanted, _KEY_MOST, most)).fetchall())


def keys_of(execute: Execute, job_ids: Sequence[str], tag: int) -> list[int | None]:
    """The keys behind public ids; None for one that is unknown, made up or not ours."""
    places = [ids.row_key(job_id, tag) for job_id in job_ids]
    wanted = [place[0] for place in places if place is not None and place[0] <= _KEY_MOST]
    times = dict(execute(SQL["enqueued_at"], (as_json(wanted),)).fetchall())
    return [
        None if place is None or times.get(place[0], -1) // 1000 != place[1] else place[0]
        for place in places
    ]


def peek(connection: sqlite3.Connection, job_ids: Sequence[str], tag: int) -> list[Peek | None]:
    """State and result of many jobs at once."""
    places = [ids.row_key(job_id, tag) for job_id in job_ids]
    wanted = [place[0] for place in places if place is not None and place[0] <= _KEY_MOST]
    rows = {row[0]: row[1:] for row in connection.execute(SQL["peek"], (as_json(wanted),))}
    found: list[Peek | None] = []
    for place in places:
        row = None if place is None else rows.get(place[0])
        if row is None or place is None or row[1] // 1000 != place[1]:
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
    """What the handlers of a job wrote."""
    (key,) = keys_of(connection.execute, [job_id], tag)
    if key is None:
        return []
    return [LogLine(*row) for row in connection.execute(SQL["logs"], (key,)).fetchall()]


def is_plain(wanted: Filter) -> bool:
    """Whether the books alone can count this filter."""
    return (
        wanted.tag is None
        and wanted.dedupe_key is None
        and wanted.error is None
        and wanted.enqueued_from is None
        and wanted.enqueued_until is None
    )


def _statement(wanted: Filter) -> str:
    states = frozenset(wanted.statuses)
    if wanted.dedupe_key is not None:
        return SQL["newest_of_key"]
    if states and states <= _ODD:
        return SQL["newest_odd"]
    return SQL["newest_running"] if states == _RUNNING else SQL["newest"]


def _values(wanted: Filter, below: int, limit: int) -> tuple[object, ...]:
    return (
        below, wanted.queue, wanted.kind, as_json(wanted.statuses) if wanted.statuses else None,
        wanted.tag, wanted.dedupe_key, wanted.error, wanted.enqueued_from, wanted.enqueued_until,
        limit,
    )  # fmt: skip


def _position(cursor: Cursor, tag: int) -> int:
    owner, _, key = cursor.partition("-")
    try:
        if int(owner, 16) == tag and 0 <= int(key, 16) <= _KEY_MOST:
            return int(key, 16)
    except ValueError:
        pass
    raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")


def _record(row: tuple[Any, ...], tag: int) -> JobRecord:
    (
        key, status, queue, kind, priority, run_at, epoch, attempts, max_attempts, enqueued_at,
        owner, started_at, finished_at, options_text, state_text, last_error, dedupe_key, limit_key,
        lane, lot, result, payload,
    ) = row  # fmt: skip
    options, state = read_options(options_text), read_state(state_text)
    return JobRecord(
        key=key,
        id=ids.job_id(key, enqueued_at, tag),
        kind=kind,
        queue=queue,
        status=JobStatus(status),
        payload=payload,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        epoch=epoch,
        enqueued_at=enqueued_at,
        run_at=run_at,
        # The column remembers the last owner; people are told of a present one.
        owner=owner if status == JobStatus.RUNNING else None,
        started_at=started_at,
        finished_at=finished_at,
        expires_at=options.expires_at,
        timeout_s=options.timeout_s,
        last_error=last_error,
        errors=state.errors,
        result=result,
        progress=state.progress,
        progress_note=state.progress_note,
        tags=options.tags,
        dedupe_key=dedupe_key,
        dedupe_for_s=options.dedupe_for_s,
        unique_while=options.unique_while,
        limit_key=limit_key,
        lane=lane,
        order=options.order,
        lot=lot,
        crashes=state.crashes,
        throttles=state.throttles,
        throttled_since=state.throttled_since,
        missing_since=state.missing_since,
        cancel_requested_at=state.cancel_at,
        on_dead=options.on_dead,
        trace=options.trace,
    )
