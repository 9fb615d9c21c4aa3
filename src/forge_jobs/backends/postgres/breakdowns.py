"""Numbers by kind and by tag on Postgres: rolled up with the counter entries, read together with
those that are not rolled up yet."""

from collections.abc import Sequence
from typing import Any

import msgspec

from forge_jobs.core.counters import KindCount, Minute, by_period, group_minutes
from forge_jobs.core.instant import DAY, FIVE_MINUTES, HOUR, MINUTE, Instant
from forge_jobs.core.tag_counts import (
    TagDay,
    TagPart,
    TagSums,
    change_day,
    days_of,
    kept_weights,
    touched_tags,
    with_incoming,
)

from . import roll_up, rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server

_LONG_PERIODS = (FIVE_MINUTES, HOUR, DAY)
# Rows of more days than these come without hours and tasks, which are most of their text.
_WHOLE_DAYS = 2
_tag_day_of = msgspec.json.Decoder(TagDay).decode
_tag_days_of = msgspec.json.Decoder(list[TagDay]).decode
_parts_of = msgspec.json.Decoder(list[TagPart]).decode


class PostgresBreakdowns:
    """``BreakdownStore``; see ``forge_jobs.store.breakdowns``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sql_files.statements("breakdowns", server.address.schema)

    async def counts(self) -> list[KindCount]:
        found = await self._server.ask(self._sql["kind_counts"], writes=False)
        return [KindCount(row[0], row[1], rows.status_of(row[2]), row[3]) for row in found]

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
        if kind is None:
            names, values = ("minute_periods", "periods"), (since, until, queue, max(limit, 0))
        else:
            starts = range(since + -since % length, until, length)
            newest = list(starts[max(len(starts) - limit, 0) :])
            names, values = ("minutes_of_kind", "periods_of_kind"), (newest, kind, queue)
        if length == MINUTE:
            found = await self._server.ask(self._sql[names[0]], *values, writes=False)
        else:
            found = await self._server.ask(self._sql[names[1]], length, *values, writes=False)
        return group_minutes(filter(roll_up.is_not_empty, map(roll_up.read_minute, found)))

    async def tag_days(
        self, *, since: Instant, until: Instant, tag: str | None = None
    ) -> list[TagDay]:
        first = since - since % DAY
        if tag is None:
            values = (first, until, until - first <= _WHOLE_DAYS * DAY)
            found = await self._server.ask_row(self._sql["tag_days"], *values, writes=False)
        else:
            values = (first, until, tag)
            found = await self._server.ask_row(self._sql["days_of_tag"], *values, writes=False)
        assert found is not None
        return with_incoming(_tag_days_of(found["days"]), _parts_of(found["entries"]), tag=tag)

    # ---------------------------------------------------------------- within the roll-up

    async def has_entries(self) -> bool:
        """Whether an entry by tag is not rolled up yet."""
        return await self._server.ask_row(self._sql["any_tag_entry"], writes=False) is not None

    async def add_periods(self, link: Link, parts: Sequence[Minute]) -> None:
        """Merge the minutes of counter entries into longer periods."""
        sums = [
            {"length": length, **roll_up.as_row(part)}
            for length in _LONG_PERIODS
            for part in by_period(parts, length)
        ]
        await link.fetch(self._sql["add_periods"], rows.as_json(sums))

    async def roll_up_tags(self, link: Link, limit: int) -> int:
        """Merge entries by tag into days; how many."""
        await link.fetch(self._sql["lock_tag_days"])
        entries = await link.fetch(self._sql["take_tag_entries"], limit)
        for day, incoming in days_of(_tag_part(row) for row in entries).items():
            found = await link.fetch(self._sql["tag_weights"], day)
            stored: dict[str, float] = {row["tag"]: row["weight"] for row in found}
            kept = kept_weights(stored, incoming)
            touched = sorted(touched_tags(kept, stored, incoming))
            known = await link.fetch(self._sql["tag_rows"], day, touched)
            change = change_day(kept, [_tag_day_of(row["whole"]) for row in known], incoming)
            if change.delete:
                await link.fetch(self._sql["delete_tag_rows"], day, list(change.delete))
            await link.fetch(self._sql["put_tag_rows"], day, *_columns(change.put))
        return len(entries)

    async def purge(self, before: Instant, limit: int) -> None:
        """Delete old periods and tags, up to a limit of each."""
        for length in _LONG_PERIODS:
            await self._server.ask(self._sql["purge_periods"], length, before - length, limit)
        await self._server.ask(self._sql["purge_short_periods"], FIVE_MINUTES, limit)
        await self._server.ask(self._sql["purge_tag_days"], before - DAY, limit)


def _columns(days: Sequence[TagDay]) -> list[list[Any]]:
    return [
        [day.tag for day in days],
        [day.weight for day in days],
        [rows.as_json(day.summary) for day in days],
        [rows.as_json(day) for day in days],
    ]


def _tag_part(row: Row) -> TagPart:
    sums = TagSums(
        row["runs"], row["done"], row["retried"], row["dead"], row["ran_s"], row["waited_s"]
    )
    return TagPart(row["minute"], row["tag"], row["queue"], row["kind"], sums)
