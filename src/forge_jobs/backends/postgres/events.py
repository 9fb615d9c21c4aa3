"""Sends events to suspended jobs, and shows events and waits."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from forge_jobs.core import ids
from forge_jobs.core.events import (
    EventRecord,
    NewEvent,
    SentEvent,
    WaitRecord,
    dedupe_kind,
    name_and_key,
    topic_of,
)

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .queries import Queries

MAX_RESUMED: Final = 500
# How many waits one call of ``deliver`` looks at for an event that was missed.
_MAX_SWEPT: Final = 1_000
_LIMIT_S: Final = 30.0
# Follows the separator of name and key, and every character of a topic.
_AFTER_SEPARATOR: Final = "\x20"
_AFTER_ALL: Final = chr(0x10FFFF)


class PostgresEvents:
    """Events and waits; see ``forge_jobs.store.events`` for what each method promises. ``notify``
    wakes the workers of queues whose first claimable jobs may have changed."""

    def __init__(
        self,
        server: Server,
        queries: Queries,
        notify: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._server = server
        self._queries = queries
        self._notify = notify
        self._sql = sql_files.statements("steps", server.address.schema)
        self._swept = ("", 0)

    async def send(self, events: Sequence[NewEvent]) -> list[SentEvent]:
        if not events:
            return []
        keys = [event.dedupe_key for event in events]
        keyed = any(key is not None for key in keys)
        [row] = await self._server.ask(
            self._sql["send"],
            self._server.store_clock.bind(),
            [topic_of(event.name, event.key) for event in events],
            [event.payload for event in events],
            [event.keep_s for event in events],
            [dedupe_kind(event.name) for event in events] if keyed else None,
            keys if keyed else None,
            MAX_RESUMED,
            limit_s=_LIMIT_S,
        )
        await self._notify(row["queues"] or ())
        return answers(len(events), row["duplicates"], row["taken"] or ())

    async def deliver(self, *, limit: int) -> int:
        async def work(link: Link) -> tuple[int, list[str], tuple[str, int]]:
            row = await link.row(self._sql["sweep_waits"], *self._swept, _MAX_SWEPT)
            assert row is not None
            swept = ("", 0) if row["last_topic"] is None else (row["last_topic"], row["last_job"])
            bound = self._server.store_clock.bind()
            row = await link.row(self._sql["deliver"], bound, max(limit, 0))
            assert row is not None
            return row["resumed"], row["queues"] or [], swept

        resumed, queues, self._swept = await self._server.within(work, limit_s=_LIMIT_S)
        await self._notify(queues)
        return resumed

    async def page(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        limit: int,
        before: int | None = None,
    ) -> list[EventRecord]:
        bounds = (*_topics(name, key), max(limit, 0))

        async def work(link: Link) -> list[Row]:
            found = list[Row]()
            if before is None:
                found += await link.fetch(self._sql["undelivered_events"], *bounds)
            below = rows.MAX_KEY if before is None else before
            return found + list(await link.fetch(self._sql["events"], *bounds, below))

        found = await self._server.within(work, writes=False)
        return [_event(row) for row in found[: max(limit, 0)]]

    async def waits(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        job_id: str | None = None,
        limit: int,
        after: tuple[str, str, str] | None = None,
    ) -> list[WaitRecord]:
        async def work(link: Link) -> Sequence[Row]:
            known = [one for one in (job_id, None if after is None else after[2]) if one]
            keys = dict(zip(known, await self._queries.keys_of(link, known), strict=True))
            last: tuple[str, int] = ("", 0)
            if after is not None:
                last = (topic_of(after[0], after[1]), keys[after[2]] or 0)
            values: list[Any] = [*_topics(name, key), *last, max(limit, 0)]
            if job_id is None:
                return await link.fetch(self._sql["waits"], *values)
            if keys[job_id] is None:
                return ()
            return await link.fetch(self._sql["waits_of_job"], *values, keys[job_id])

        found = await self._server.within(work, writes=False)
        return [self._wait(row) for row in found]

    def _wait(self, row: Row) -> WaitRecord:
        return WaitRecord(
            ids.job_id(row["job"], row["enqueued_at"], self._queries.tag), row["kind"],
            row["queue"], *name_and_key(row["topic"]), row["step"], row["began_at"],
            row["deadline"],
        )  # fmt: skip


def answers(
    count: int, duplicates: Sequence[int], taken: Sequence[int | None] = ()
) -> list[SentEvent]:
    """One answer per event, from the positions of duplicates, and of the event that each resumed
    job took."""
    not_sent = frozenset(duplicates)
    return [
        SentEvent(position in not_sent, sum(one == position for one in taken))
        for position in range(1, count + 1)
    ]


def plain(event: NewEvent) -> dict[str, Any]:
    """An event for ``send_json_v1``."""
    fields = {
        "topic": topic_of(event.name, event.key),
        "payload": event.payload.decode(),
        "keep_s": event.keep_s,
        "kind": dedupe_kind(event.name),
        "dedupe_key": event.dedupe_key,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _topics(name: str | None, key: str | None) -> tuple[str, str]:
    """The first topic of a name or of a name and key, and the one after the last."""
    if name is None:
        return "", _AFTER_ALL
    topic = topic_of(name, key or "")
    if key is None:
        return topic, topic[:-1] + _AFTER_SEPARATOR
    return topic, topic + "\x01"


def _event(row: Row) -> EventRecord:
    name, key = name_and_key(row["topic"])
    return EventRecord(name, key, row["at"], row["ends_at"], row["payload"], row["seq"])
