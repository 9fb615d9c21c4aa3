"""The contracts for steps and events of a row-wise store: each method is one transaction."""

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import structs

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

from . import actions, events
from .step_ports import StoredEvent
from .storage import Storage
from .tables import Tables


class RowwiseSteps:
    """``StepStore`` row by row; see ``forge_jobs.store.steps`` for what each method promises."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def page(
        self,
        job_id: str,
        *,
        after: str | None = None,
        limit: int = 1_000,
        values: bool = True,
        names: Sequence[str] = (),
    ) -> list[StepRecord]:
        with self._storage.read():
            row = self._storage.tables.find(job_id)
            history = {} if row is None else self._storage.tables.steps.get(row.key, {})
            found = sorted(set(names) & set(history) if names else history)
            page = [history[name] for name in found if after is None or name > after][:limit]
            return page if values else [structs.replace(step, value=None) for step in page]

    async def retry_from(self, job_id: str, step: str) -> bool:
        with self._storage.write() as tx:
            found = tx.tables.find(job_id)
            if found is None:
                raise NotFound(f"there is no job {job_id}")
            row = tx.load([found.key])[found.key]
            if row.status not in RETRYABLE:
                return False
            known = tx.steps.find([(row.key, step)])
            if not known:
                raise NotFound(f"job {job_id} has no step {shown_step(step)!r}")
            if actions.retry(tx, row) is actions.Effect.KEY_TAKEN:
                raise KeyTaken(f"another live job holds the dedupe key {row.dedupe_key!r}")
            tx.steps.delete(row.key, known[row.key, step].began_at)
            tx.store([row])
            return True


class RowwiseEvents:
    """``EventStore`` row by row; see ``forge_jobs.store.events`` for what each method promises."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def send(self, events: Sequence[NewEvent]) -> list[SentEvent]:
        return self.send_sync(events)

    def send_sync(self, sent: Sequence[NewEvent]) -> list[SentEvent]:
        """``send`` on the calling thread."""
        with self._storage.write() as tx:
            return events.send(tx, sent)

    async def deliver(self, *, limit: int) -> int:
        with self._storage.write() as tx:
            return events.deliver(tx, limit)

    async def page(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        limit: int,
        before: int | None = None,
    ) -> list[EventRecord]:
        tables = self._storage.tables
        with self._storage.read():
            topic = None if name is None or key is None else topic_of(name, key)
            stored = (tables.events[seq] for seq in tables.event_index.newest(topic, before))
            found = (event for event in map(_record, stored) if name in (None, event.name))
            return list(islice(found, limit))

    async def waits(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        job_id: str | None = None,
        limit: int,
        after: tuple[str, str, str] | None = None,
    ) -> list[WaitRecord]:
        tables = self._storage.tables
        with self._storage.read():
            topics = tables.event_index.wait_topics()
            if name is not None:
                topics = [topic for topic in topics if _is_of(topic, name, key)]
            if after is not None:
                first = topic_of(*after[:2])
                topics = [topic for topic in topics if topic >= first]
            found = (record for topic in topics for record in _waits_of(tables, topic, after))
            return list(islice((one for one in found if job_id in (None, one.job_id)), limit))


def _record(event: StoredEvent) -> EventRecord:
    name, key = name_and_key(event.topic)
    return EventRecord(name, key, event.sent_at, event.ends_at, event.payload, event.seq)


def _is_of(topic: str, name: str, key: str | None) -> bool:
    own_name, own_key = name_and_key(topic)
    return own_name == name and key in (None, own_key)


def _waits_of(
    tables: Tables, topic: str, after: tuple[str, str, str] | None
) -> Iterator[WaitRecord]:
    last = 0
    if after is not None and topic == topic_of(*after[:2]):
        known = ids.row_key(after[2], tables.tag)
        last = 0 if known is None else known[0]
    name, key = name_and_key(topic)
    for job in tables.event_index.waiting(topic):
        if job > last:
            row, wait = tables.jobs[job], tables.waits[job].wait
            yield WaitRecord(
                row.id, row.kind, row.queue, name, key, wait.step, wait.began_at, wait.deadline
            )
