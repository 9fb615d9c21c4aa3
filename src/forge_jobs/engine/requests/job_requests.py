"""The one way from a kind and a payload to a request for a job (``NewJob``).

``forge.enqueue``, ``ctx.enqueue`` by kind, ``QueueRuntime.enqueue``, schedules, ``forge enqueue``
and the HTTP API all come through here. A task of this program says everything about its jobs; for
other kinds the queue and the limits are those that workers have published (``PublishedKinds``).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob, merge_options
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import task_limit, with_declared
from forge_jobs.core.names import kind_name, queue_name
from forge_jobs.core.schedule import CronSpec
from forge_jobs.engine.running.registry import HandlerRegistry

from .published_kinds_cache import PublishedKindsCache
from .routing import Router


class PayloadTask(Protocol):
    """A task of this program: it checks its arguments and knows the options of its jobs."""

    def bind_payload(self, payload: object) -> NewJob:
        """The request for a call whose arguments lie in one object, by name."""
        ...


class JobRequests:
    """Makes requests for one program: its tasks, its handlers, its router, else what is published.

    Only ``refresh`` waits for the store; everything else uses the last snapshot of the published
    kinds, so that handlers may call it on their event loop. ``router`` None: the queue is the
    published one, else ``default``.
    """

    def __init__(
        self,
        handlers: HandlerRegistry,
        published_kinds: PublishedKindsCache,
        *,
        router: Router | None = None,
        tasks: Mapping[str, PayloadTask] | None = None,
    ) -> None:
        self._handlers = handlers
        self._published = published_kinds
        self._router = router
        self._tasks: Mapping[str, PayloadTask] = {} if tasks is None else tasks

    def is_current(self, kind: str) -> bool:
        """Whether a request for ``kind`` needs no ``refresh`` first. BadName for a bad kind."""
        return kind_name(kind) in self._tasks or self._published.is_fresh

    async def refresh(self) -> None:
        """Read what workers have published."""
        await self._published.refresh()

    def declared_queue(self, kind: str) -> str | None:
        """The queue that this program's task or handler names for the kind, if any."""
        handler = self._handlers.get(kind)
        return None if handler is None else handler.queue

    def route(self, kind: str) -> str:
        """The queue of a kind: what is declared here, else the router, else what is published."""
        declared = self.declared_queue(kind)
        if declared is not None:
            return declared
        if self._router is not None:
            return queue_name(self._router.route(kind))
        return self._published.current().queues.get(kind, DEFAULT_QUEUE)

    def request(
        self,
        kind: str,
        value: object,
        fields: Mapping[str, Any] | None = None,
        *,
        what: str = "payload",
    ) -> NewJob:
        """The request for a job with the payload ``value``; ``fields`` are checked fields of NewJob
        that the caller sets. Arguments are checked if the task is registered here."""
        task = self._tasks.get(kind_name(kind))
        if task is None:
            return self.new_job(kind, payload.encode(value, what=what), fields or {})
        job = task.bind_payload(value)
        if not fields:
            return job
        if job.options and "options" in fields:
            fields = {**fields, "options": merge_options(job.options, fields["options"])}
        return replace(job, **fields)

    def new_job(self, kind: str, data: bytes, fields: Mapping[str, Any]) -> NewJob:
        """The request for a job of a kind without a task here; ``data`` is its encoded payload."""
        given = dict(fields)
        queue = given.pop("queue", None) or self.route(kind)
        job = NewJob(kind=kind, queue=queue, payload=data, **given)
        declared = self._handlers.limits.get(task_limit(kind))
        if declared is not None:
            return apply_limit(job, with_declared(None, declared, 0))
        return self._published.current().apply(job)

    def scheduled_job(
        self, schedule: CronSpec, *, tick: Instant | None = None, run_at: Instant | None = None
    ) -> NewJob:
        """The job of one tick of a schedule, by what the last ``refresh`` read.

        What is published comes before the router: any process may fire the tick, and their routers
        may differ.
        """
        router = self._router
        return self._published.snapshot.scheduled_job(
            schedule,
            declared=self.declared_queue(schedule.kind),
            route=None if router is None else router.route,
            tick=tick,
            run_at=run_at,
        )
