"""The contracts for steps and events on SQLite: each method is an operation or a query."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Final

from forge_jobs.backends.shared.rowwise import actions, events
from forge_jobs.core import ids
from forge_jobs.core.errors import KeyTaken, NotFound
from forge_jobs.core.events import (
    EventRecord,
    NewEvent,
    SentEvent,
    WaitRecord,
    name_and_key,
    topic_of,
)
from forge_jobs.core.status import RETRYABLE
from forge_jobs.core.steps import StepRecord, shown_step

from . import queries
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .json_text import as_json
from .steps import SQL, read_step

_MAX_SEQ: Final = (1 << 63) - 1
# Topics are a name, U+001F and a key; the topics of a name end before this character.
_AFTER_SEPARATOR: Final = "\x20"
_LAST_TOPIC: Final = chr(0x10FFFF)


class SqliteStepStore:
    """``StepStore``; see ``forge_jobs.store.steps`` for the contract of each method."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.tag = 0

    async def page(
        self,
        job_id: str,
        *,
        after: str | None = None,
        limit: int = 1_000,
        values: bool = True,
        names: Sequence[str] = (),
    ) -> list[StepRecord]:
        return await self._reader.call(
            partial(_page, job_id, self.tag, after or "", limit, values, names)
        )

    async def retry_from(self, job_id: str, step: str) -> bool:
        return await self._writer.call(partial(_retry_from, job_id, step))


class SqliteEvents:
    """``EventStore``; see ``forge_jobs.store.events`` for the contract of each method."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.tag = 0

    async def send(self, events: Sequence[NewEvent]) -> list[SentEvent]:
        return await self._writer.call(partial(_send, events), durable=True)

    async def deliver(self, *, limit: int) -> int:
        if not await self._reader.call(_any_open):
            return 0
        return await self._writer.call(lambda tx: events.deliver(tx, limit), durable=True)

    async def page(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        limit: int,
        before: int | None = None,
    ) -> list[EventRecord]:
        below = _MAX_SEQ if before is None else before
        return await self._reader.call(partial(_events, name, key, limit, below))

    async def waits(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        job_id: str | None = None,
        limit: int,
        after: tuple[str, str, str] | None = None,
    ) -> list[WaitRecord]:
        return await self._reader.call(partial(_waits, name, key, job_id, limit, after, self.tag))


def _page(
    job_id: str,
    tag: int,
    after: str,
    limit: int,
    values: bool,
    names: Sequence[str],
    connection: sqlite3.Connection,
) -> list[StepRecord]:
    (job,) = queries.keys_of(connection.execute, [job_id], tag)
    if job is None:
        return []
    if names:
        rows = connection.execute(
            SQL["named_steps"], (job, after, limit, values, as_json(list(names)))
        )
    else:
        rows = connection.execute(SQL["page_of_steps"], (job, after, limit, values))
    return [read_step(row) for row in rows.fetchall()]


def _retry_from(job_id: str, step: str, tx: Tx) -> bool:
    (key,) = queries.keys_of(tx.execute, [job_id], tx.tag)
    if key is None:
        raise NotFound(f"there is no job {job_id}")
    row = tx.load([key])[key]
    if row.status not in RETRYABLE:
        return False
    known = tx.steps.find([(key, step)])
    if not known:
        raise NotFound(f"job {job_id} has no step {shown_step(step)!r}")
    if actions.retry(tx, row) is actions.Effect.KEY_TAKEN:
        raise KeyTaken(f"another live job holds the dedupe key {row.dedupe_key!r}")
    tx.steps.delete(key, known[key, step].began_at)
    tx.store([row])
    return True


def _send(sent: Sequence[NewEvent], tx: Tx) -> list[SentEvent]:
    return events.send(tx, sent)


def _any_open(connection: sqlite3.Connection) -> bool:
    return connection.execute(SQL["open_events"], (1,)).fetchone() is not None


def _events(
    name: str | None, key: str | None, limit: int, below: int, connection: sqlite3.Connection
) -> list[EventRecord]:
    if name is None:
        rows = connection.execute(SQL["page_of_events"], (below, limit))
    elif key is None:
        rows = connection.execute(SQL["events_of_name"], (below, limit, *_topics_of(name)))
    else:
        rows = connection.execute(SQL["events_of_topic"], (below, limit, topic_of(name, key)))
    return [
        EventRecord(*name_and_key(topic), sent_at, ends_at, payload, seq)
        for topic, sent_at, ends_at, payload, seq in rows.fetchall()
    ]


def _waits(
    name: str | None,
    key: str | None,
    job_id: str | None,
    limit: int,
    after: tuple[str, str, str] | None,
    tag: int,
    connection: sqlite3.Connection,
) -> list[WaitRecord]:
    first, end = ("", _LAST_TOPIC) if name is None else _topics_of(name)
    if name is not None and key is not None:
        first = topic_of(name, key)
        end = f"{first}\0"
    last_topic, last_job = "", 0
    if after is not None:
        known = ids.row_key(after[2], tag)
        last_topic, last_job = topic_of(*after[:2]), 0 if known is None else known[0]
    values = (first, end, last_topic, last_job, limit)
    if job_id is None:
        rows = connection.execute(SQL["page_of_waits"], values)
    else:
        (job,) = queries.keys_of(connection.execute, [job_id], tag)
        rows = connection.execute(SQL["waits_of_job"], (*values, job))
    return [
        WaitRecord(
            ids.job_id(job, enqueued_at, tag), kind, queue, *name_and_key(topic), step, began_at,
            deadline,
        )
        for job, enqueued_at, kind, queue, topic, step, began_at, deadline in rows.fetchall()
    ]  # fmt: skip


def _topics_of(name: str) -> tuple[str, str]:
    """The range of the topics of an event's name."""
    return topic_of(name, ""), f"{name}{_AFTER_SEPARATOR}"
