"""What workers have published about kinds: read by whoever stores a job of a task it does not have.

This is the one place where published facts are applied to a job. A fact that is to hold whichever
way a job comes in (by kind, by request, by schedule, as a copy) is applied here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import declaration, payload
from forge_jobs.core.declaration import (
    Declaration,
    did_you_mean,
    undeclared,
    unrouted,
    with_fields,
)
from forge_jobs.core.errors import UnknownKind
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import Limit, task_limit
from forge_jobs.core.parent import with_schedule
from forge_jobs.core.schedule import CronSpec

from .settings import Setting
from .store import Store

# The namespace of the published declarations, by kind.
DECLARATION: Final = "declaration"
_HAS_FORMER: Final = b'"former":[{'
_NOTHING_DECLARED: Final = b"{}"


async def publish_declarations(store: Store, declared: Mapping[str, Declaration]) -> None:
    """Store what the tasks of a worker declare. The last write wins. Nothing is written when
    nothing changes."""
    known = {one.name: one.value for one in await store.settings.all(DECLARATION)}
    fresh = {
        kind: partial(_encoded, one)
        for kind, one in declared.items()
        if declaration.encode(one, known.get(kind), 0) is not None
    }
    if fresh:
        await store.settings.update(DECLARATION, fresh)


def _encoded(declared: Declaration, known: Setting | None, now: Instant) -> bytes | None:
    return declaration.encode(declared, None if known is None else known.value, now)


class PublishedKinds(Struct, frozen=True):
    """A snapshot: the queue of each kind, the limits by name (``core.limits.task_limit``), and what
    the task of each kind declares. A worker of an older release publishes the first two only."""

    queues: Mapping[str, str] = {}
    limits: Mapping[str, Limit] = {}
    declarations: Mapping[str, Declaration] = {}

    @classmethod
    async def read(cls, store: Store) -> "PublishedKinds":
        """What the store says now: three queries, four while two versions of a task are around."""
        queues = await store.queues.kinds()
        limits = {limit.name: limit for limit in await store.limits.all()}
        records = await store.settings.all(DECLARATION)
        now = await store.now() if any(_HAS_FORMER in one.value for one in records) else 0
        found = {one.name: declaration.decode(one.name, one.value, now) for one in records}
        return cls(queues, limits, {kind: one for kind, one in found.items() if one is not None})

    def check(self, kind: str, value: object, *, remedy: str, known: bool = False) -> None:
        """BadArguments if the payload does not fit what the task of the kind takes. With ``known``,
        UnknownKind if kinds are published but not this one. ``remedy`` is how to store it all the
        same."""
        declared = self.declarations.get(kind)
        if declared is not None:
            declared.check_arguments(value, remedy=remedy)
        elif known and self.queues and kind not in self.queues:
            raise UnknownKind(
                f"no worker has published the kind {kind!r}{did_you_mean(kind, self.queues)} "
                f"Known kinds: {_listed(self.queues)}. To store it all the same: {remedy}"
            )

    def encode(self, kind: str, value: object, *, what: str) -> bytes:
        """The payload as JSON, within the limit that the task declares."""
        return payload.encode(value, limit=self.payload_limit(kind), what=what)

    def payload_limit(self, kind: str) -> int:
        """How many bytes of arguments the task of the kind takes."""
        declared = self.declarations.get(kind)
        return payload.MAX_PAYLOAD_BYTES if declared is None else declared.payload_limit

    def new_job(
        self, kind: str, queue: str | None, data: bytes, fields: Mapping[str, Any]
    ) -> NewJob:
        """The request for a job of a task that is not here: ``fields`` are what the caller gives,
        the rest is what the task declares. An unknown task leaves it open (``undeclared``), and so
        does ``queue`` None: nothing names a queue (``unrouted``)."""
        if queue is None:
            return unrouted(self.new_job(kind, DEFAULT_QUEUE, data, fields))
        declared = self.declarations.get(kind)
        plain = NewJob(kind=kind, queue=queue, payload=data)
        if declared is None:
            return self.apply(undeclared(with_fields(plain, fields), fields))
        template = declaration.for_call(declared.template, queue, data)
        return self.apply(with_fields(template, fields, where=f"a job of kind {kind!r}"))

    def apply(self, job: NewJob) -> NewJob:
        """The job with what is published for its kind: its track and its limit key."""
        return apply_limit(job, self.limits.get(task_limit(job.kind)))

    def scheduled_job(
        self,
        schedule: CronSpec,
        *,
        declared: Declaration | None = None,
        queue: str | None = None,
        route: Callable[[str], str] | None = None,
        tick: Instant | None = None,
        run_at: Instant | None = None,
    ) -> NewJob:
        """The job of one tick of a schedule; without ``tick`` a person fires it.

        ``declared`` and ``queue`` are what this program's task says, if it has the task; else what
        is published counts. The queue is the schedule's own, else ``queue``, else the published
        one, else what ``route`` says, else ``default``.
        """
        # Imported here: producers without schedules do not load the calendar.
        from forge_jobs.core.schedule_ticks import job_for

        kind = schedule.kind
        chosen = schedule.queue or queue or self.queues.get(kind)
        if chosen is None and route is not None:
            chosen = route(kind)
        known = declared or self.declarations.get(kind)
        template = None if known is None else known.template
        queue = chosen or DEFAULT_QUEUE
        job = job_for(schedule, queue=queue, tick=tick, run_at=run_at, template=template)
        job = with_schedule(job, schedule.name)
        if known is not None:
            what = f"schedule {schedule.name!r}: the payload"
            payload.check(job.payload, limit=known.payload_limit, what=what)
        elif schedule.template == _NOTHING_DECLARED:
            job = undeclared(job, () if schedule.max_attempts is None else ("max_attempts",))
        return self.apply(unrouted(job) if chosen is None and known is None else job)


def _listed(kinds: Mapping[str, str]) -> str:
    names = sorted(kinds)
    shown = ", ".join(names[:20])
    return f"{shown}, …" if len(names) > 20 else shown
