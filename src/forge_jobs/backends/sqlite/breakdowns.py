"""Numbers by kind and by tag on SQLite: rolled up with the counter entries, read together with
those that are not rolled up yet."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from itertools import chain

import msgspec

from forge_jobs.core.counters import KindCount, Minute, by_period, group_minutes
from forge_jobs.core.instant import DAY, FIVE_MINUTES, HOUR, MINUTE, Instant
from forge_jobs.core.status import JobStatus
from forge_jobs.core.tag_counts import (
    TagDay,
    TagPart,
    change_day,
    days_of,
    kept_weights,
    touched_tags,
    with_incoming,
    within,
)

from .counters import BREAKDOWNS_SQL as SQL
from .counters import Execute
from .io.reader import Reader

_LONG_PERIODS = (FIVE_MINUTES, HOUR, DAY)
# Rows of more days than these come without hours and tasks, which are most of their text.
_WHOLE_DAYS = 2
_minutes_of = msgspec.json.Decoder(list[Minute]).decode
_entries_of = msgspec.json.Decoder(list[list[Minute]]).decode
_tag_entries_of = msgspec.json.Decoder(list[list[TagPart]]).decode
_tag_days_of = msgspec.json.Decoder(list[TagDay]).decode
_tag_day_of = msgspec.json.Decoder(TagDay).decode
_encode = msgspec.json.encode


class SqliteBreakdowns:
    """``BreakdownStore``; see ``forge_jobs.store.breakdowns``."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def counts(self) -> list[KindCount]:
        return await self._reader.call(_counts)

    async def periods(
        self,
        length: Instant,
        *,
        since: Instant,
        until: Instant,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 20_000,
    ) -> list[Minute]:
        return await self._reader.call(
            partial(_periods, length, since, until, queue, kind, max(limit, 0))
        )

    async def tag_days(
        self, *, since: Instant, until: Instant, tag: str | None = None
    ) -> list[TagDay]:
        return await self._reader.call(partial(_tag_days, since - since % DAY, until, tag))


def roll_up(execute: Execute, parts: Sequence[Minute], limit: int) -> None:
    """Merge the minutes of counter entries into longer periods, and entries by tag into days."""
    for length in _LONG_PERIODS:
        sums = by_period(parts, length)
        names = _text([(part.at, part.queue, part.kind) for part in sums])
        stored = _minutes_of(execute(SQL["stored_periods"], (length, names)).fetchone()[0])
        merged = group_minutes([*stored, *sums])
        rows = [(part.at, part.queue, part.kind, _text(part)) for part in merged]
        execute(SQL["put_periods"], (length, _text(rows)))
    last_id, entries = execute(SQL["oldest_tag_entries"], (max(limit, 1),)).fetchone()
    if last_id is not None:
        for day, incoming in days_of(chain.from_iterable(_tag_entries_of(entries))).items():
            _change_day(execute, day, incoming)
        execute(SQL["delete_tag_entries"], (last_id,))


def purge(execute: Execute, before: Instant, limit: int) -> None:
    """Delete old periods and tags, up to a limit of each."""
    for length in _LONG_PERIODS:
        execute(SQL["purge_periods"], (length, before - length, limit))
    execute(SQL["purge_short_periods"], (FIVE_MINUTES, limit))
    execute(SQL["purge_tag_days"], (before - DAY, limit))


def _change_day(execute: Execute, day: Instant, incoming: Sequence[TagDay]) -> None:
    stored: dict[str, float] = dict(execute(SQL["tag_weights"], (day,)).fetchall())
    kept = kept_weights(stored, incoming)
    touched = touched_tags(kept, stored, incoming)
    rows = execute(SQL["tag_rows"], (day, _text(sorted(touched)))).fetchall()
    change = change_day(kept, [_tag_day_of(whole) for (whole,) in rows], incoming)
    if change.delete:
        execute(SQL["delete_tag_rows"], (day, _text(change.delete)))
    for row in change.put:
        texts = (_text(row.summary), _text(row))
        execute(SQL["put_tag_row"], (row.day, row.tag, row.weight, *texts))


def _counts(connection: sqlite3.Connection) -> list[KindCount]:
    rows = connection.execute(SQL["kind_counts"]).fetchall()
    return [KindCount(queue, kind, JobStatus(status), jobs) for queue, kind, status, jobs in rows]


def _periods(
    length: Instant,
    since: Instant,
    until: Instant,
    queue: str | None,
    kind: str | None,
    limit: int,
    connection: sqlite3.Connection,
) -> list[Minute]:
    statement, values = _statement(length, since, until, queue, kind, limit)
    stored, entries, new = connection.execute(SQL[statement], values).fetchone()
    parts = [
        part
        for part in chain(chain.from_iterable(_entries_of(entries)), _minutes_of(new))
        if since <= part.at - part.at % length < until
        and queue in (None, part.queue)
        and kind in (None, part.kind)
    ]
    return group_minutes([*_minutes_of(stored), *by_period(parts, length)])


def _statement(
    length: Instant,
    since: Instant,
    until: Instant,
    queue: str | None,
    kind: str | None,
    limit: int,
) -> tuple[str, tuple[object, ...]]:
    if kind is None:
        values = (since, until, queue, limit)
        return ("minute_periods", values) if length == MINUTE else ("periods", (length, *values))
    starts = range(since + -since % length, until, length)
    values = (_text(list(starts[max(len(starts) - limit, 0) :])), kind, queue)
    return (
        ("minutes_of_kind", values) if length == MINUTE else ("periods_of_kind", (length, *values))
    )


def _tag_days(
    since: Instant, until: Instant, tag: str | None, connection: sqlite3.Connection
) -> list[TagDay]:
    if tag is None:
        whole = until - since <= _WHOLE_DAYS * DAY
        found = connection.execute(SQL["tag_days"], (since, until, whole))
    else:
        found = connection.execute(SQL["days_of_tag"], (_text(list(range(since, until, DAY))), tag))
    rows, entries = found.fetchone()
    stored = _tag_days_of(rows)
    parts = list(chain.from_iterable(_tag_entries_of(entries)))
    return with_incoming(stored, within(parts, since=since, until=until, tag=tag), tag=tag)


def _text(value: object) -> str:
    return _encode(value).decode()
