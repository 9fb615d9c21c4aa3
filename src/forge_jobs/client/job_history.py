"""What a job handle shows of the job's steps, and how it sends events to the job."""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from forge_jobs.core.errors import Refused
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.new_event import new_event
from forge_jobs.core.status import JobStatus, is_terminal
from forge_jobs.core.steps import StepKind, StepRecord, is_internal, shown_step
from forge_jobs.core.unused_steps import read_unused, unused_record
from forge_jobs.store.jobs import Peek

from .event_client import EventClient
from .job_actions import not_found

if TYPE_CHECKING:
    from forge_jobs.store.store import Store

    from .job_client import JobClient

_PAGE = 1_000


class StoredStep(Struct, frozen=True):
    """One stored step of a job.

    ``name`` is as people read it: ``fetch[a.png]`` with a key, ``fetch#2`` for a second call.
    ``value`` is plain JSON: that of the function; for an error its class, message and arguments;
    for an event name, key, payload and time; for a sleep its end. ``unused``: the run that ended
    the job did not use it; always False before the end.

    >>> @forge.task
    ... async def import_file(path: str, ctx: Context) -> int:
    ...     return await ctx.step("count", len, path)
    >>> job = import_file.enqueue("a.csv")
    >>> report = forge.drain().run()
    >>> [(step.name, step.value) for step in job.steps()]
    [('count', 5)]
    """

    name: str
    kind: StepKind
    began_at: datetime
    ended_at: datetime
    value: Any = None
    unused: bool = False


class JobHistory:
    """The part of ``Job`` that is about steps and events."""

    __slots__ = ()

    id: str
    _client: "JobClient"

    def steps(self) -> list[StoredStep]:
        """The stored steps, in the order in which they began: ``job.steps()``."""
        return self._client.access.run(self._read_steps)

    async def asteps(self) -> list[StoredStep]:
        """``steps`` for coroutines."""
        return await self._read_steps(await self._client.access.aready())

    def send(self, name: str, payload: object = None) -> SentEvent:
        """Send an event to this job: ``ctx.wait_for(name)`` without a key takes it. Refused if the
        job has ended, NotFound when there is no such job."""
        event = self._event(name, payload)
        (peek,) = self._client.access.run(lambda store: store.jobs.peek([self.id]))
        self._check_live(peek)
        return EventClient(self._client).send(event)

    async def asend(self, name: str, payload: object = None) -> SentEvent:
        """``send`` for coroutines."""
        event = self._event(name, payload)
        store = await self._client.access.aready()
        (peek,) = await store.jobs.peek([self.id])
        self._check_live(peek)
        return await EventClient(self._client).asend(event)

    def _event(self, name: str, payload: object) -> NewEvent:
        return new_event(name, payload, key=self.id, what="job.send(...)")

    def _check_live(self, peek: Peek | None) -> None:
        if peek is None:
            raise not_found(self.id)
        if is_terminal(peek.status):
            raise Refused(f"job {self.id} is {JobStatus(peek.status).value}: it waits for no event")

    async def _read_steps(self, store: "Store") -> list[StoredStep]:
        found: list[StepRecord] = []
        after: str | None = None
        while page := await store.steps.page(self.id, after=after, limit=_PAGE):
            found += page
            after = page[-1].name
        unused = await self._unused(store, found)
        shown = [record for record in found if not is_internal(record.name)]
        return [
            _stored_step(one, one.name in unused)
            for one in sorted(shown, key=lambda one: one.began_at)
        ]

    async def _unused(self, store: "Store", found: list[StepRecord]) -> Collection[str]:
        if not any(one.kind is StepKind.UNUSED for one in found):
            return ()
        job = await store.jobs.get(self.id)
        kept = None if job is None else unused_record(job, found)
        return () if kept is None else read_unused(kept, found)[0]


def _stored_step(record: StepRecord, unused: bool) -> StoredStep:
    value: Any = None if record.value is None else msgspec.json.decode(record.value)
    if record.kind is StepKind.SLEEP:
        value = to_datetime(value)
    elif record.kind is StepKind.EVENT:
        value = {**value, "sent_at": to_datetime(value["sent_at"])}
    return StoredStep(
        name=shown_step(record.name),
        kind=record.kind,
        began_at=to_datetime(record.began_at),
        ended_at=to_datetime(record.ended_at),
        value=value,
        unused=unused,
    )
