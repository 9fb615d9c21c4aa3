"""Reading jobs: one by id, pages by filter, results for whoever waits."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, assert_never

from forge_jobs.backends.shared import pagination
from forge_jobs.backends.shared.pagination import (
    FilterCounts,
    FoundKeys,
    ReadCounters,
    ReadFirstKey,
    ReadKeyRange,
    ReadKeys,
    ReadMatching,
)
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core import ids
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import Claim, JobRecord, LogLine
from forge_jobs.core.selection import Cursor, Filter, Page
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Owned, Peek

from .counters import SQL as BOOKS
from .counters import Execute
from .rows import read_options, read_state
from .transitions import as_json

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "queries.sql")

_MAX_KEY: Final = (1 << 63) - 1
_ODD: Final = frozenset({JobStatus.FAILED, JobStatus.HELD, JobStatus.DEAD, JobStatus.CANCELLED})
# So many keys are put in order in a few milliseconds.
_MAX_SORTED: Final = 20_000
_LAST_NAME: Final = chr(0x10FFFF)


def get(connection: sqlite3.Connection, job_id: str, tag: int) -> JobRecord | None:
    """One job by its public id."""
    place = ids.row_key(job_id, tag)
    if place is None or place[0] > _MAX_KEY:
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
    found = newest(connection.execute, wanted, limit=limit, after=after, tag=tag)
    rows = connection.execute(SQL["jobs"], (as_json(found.keys),)).fetchall()
    jobs = tuple(_record(row, tag) for row in rows)
    return Page(jobs, cursor(found, tag), found.stopped, found.rows_read)


def newest(
    execute: Execute, wanted: Filter, *, limit: int, after: Cursor | None, tag: int
) -> FoundKeys:
    """Keys of up to ``limit`` matching jobs, newest first."""
    below = _MAX_KEY if after is None else _position(after, tag)
    return _walked(execute, wanted, max(limit, 1), below)


def cursor(found: FoundKeys, tag: int) -> Cursor | None:
    """Where the next page begins."""
    return None if found.rest is None else f"{tag:x}-{found.rest:x}"


def count(execute: Execute, wanted: Filter, cap: int) -> CappedCount:
    """How many jobs match, looking at no more than so many."""
    if pagination.in_counters(wanted):
        counted = pagination.filter_counts(execute(BOOKS["count_plain"]).fetchall(), wanted)
        return CappedCount(min(counted.fitting, cap), counted.fitting > cap)
    found = _walked(execute, wanted, cap, _MAX_KEY, counting=True)
    return CappedCount(len(found.keys), found.rest is not None)


def _walked(
    execute: Execute, wanted: Filter, limit: int, below: int, *, counting: bool = False
) -> FoundKeys:
    values = _values(wanted)
    queues = (wanted.queue or "", wanted.queue or _LAST_NAME)
    more: dict[str, tuple[object, ...]] = {
        "key": (wanted.dedupe_key,), "due": queues, "line": queues, "side": queues,
        **{status: (status,) for status in _ODD},
    }  # fmt: skip
    steps = pagination.find_keys(
        wanted, _sources, limit=limit, below=below, exact=wanted == Filter(), counting=counting
    )
    answer: Any = None
    try:
        while True:
            question = steps.send(answer)
            match question:
                case ReadCounters():
                    answer = execute(BOOKS["count_plain"]).fetchall()
                case ReadKeyRange():
                    low, high = execute(SQL["ends"]).fetchone()
                    answer = None if low is None else (low, high)
                case ReadFirstKey(key):
                    answer = execute(SQL["at_or_after"], (key,)).fetchone()
                case ReadKeys(sources, top, most):
                    answer = [
                        [key for (key,) in execute(
                            SQL[f"keys_of_{'odd' if source in _ODD else source}"],
                            (top, most, *more.get(source, ())),
                        )]
                        for source in sources
                    ]  # fmt: skip
                case ReadMatching(keys):
                    answer = execute(SQL["which"], (as_json(keys), *values)).fetchall()
                case _:
                    assert_never(question)
    except StopIteration as end:
        return end.value


def _sources(wanted: Filter, counted: FilterCounts | None) -> tuple[str, ...]:
    """Where to take keys from: indexes of the wanted states, if all of them have one to offer."""
    if wanted.dedupe_key is not None:
        return ("key",)
    if counted is None or not wanted.statuses:
        return ("all",)
    sources: list[str] = []
    for status in dict.fromkeys(wanted.statuses):
        if status in _ODD:
            sources.append(status.value)
        elif status is JobStatus.RUNNING:
            sources.append("running")
        elif counted.of_queue[status] > _MAX_SORTED or status is JobStatus.DONE:
            return ("all",)
        elif status is JobStatus.PENDING:
            sources += ("new", "line", "side")
        elif counted.of_queue[JobStatus.FAILED] > _MAX_SORTED:
            return ("all",)
        else:
            sources.append("due")
    return tuple(sources)


def keys_of(execute: Execute, job_ids: Sequence[str], tag: int) -> list[int | None]:
    """The keys behind public ids; None for one that is unknown, made up or not ours."""
    places = [ids.row_key(job_id, tag) for job_id in job_ids]
    wanted = [place[0] for place in places if place is not None and place[0] <= _MAX_KEY]
    times = dict(execute(SQL["enqueued_at"], (as_json(wanted),)).fetchall())
    return [
        None if place is None or times.get(place[0], -1) // 1000 != place[1] else place[0]
        for place in places
    ]


def peek(connection: sqlite3.Connection, job_ids: Sequence[str], tag: int) -> list[Peek | None]:
    """State and result of many jobs at once."""
    places = [ids.row_key(job_id, tag) for job_id in job_ids]
    wanted = [place[0] for place in places if place is not None and place[0] <= _MAX_KEY]
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


def _values(wanted: Filter) -> tuple[object, ...]:
    return (
        wanted.queue, wanted.kind, as_json(wanted.statuses) if wanted.statuses else None,
        wanted.tag, wanted.dedupe_key,
        None if wanted.error is None else pagination.required_error_text(wanted.error),
        wanted.enqueued_from, wanted.enqueued_until,
        None if wanted.payload is None else pagination.required_payload_text(wanted.payload),
    )  # fmt: skip


def _position(cursor: Cursor, tag: int) -> int:
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
        limit_bucket=lot,
        crashes=state.crashes,
        throttles=state.throttles,
        throttled_since=state.throttled_since,
        missing_since=state.missing_since,
        cancel_requested_at=state.cancel_at,
        on_dead=options.on_dead,
        trace=options.trace,
    )
