"""The one way from a kind and a payload to a request for a job (``NewJob``).

``forge.enqueue``, ``ctx.enqueue`` by kind, ``QueueRuntime.enqueue``, schedules, ``forge enqueue``
and the HTTP API all come through here. A task of this program says everything about its jobs; for
other kinds that is what workers have published (``PublishedKinds``). A kind of which nothing is
known is stored with a mark, and the first worker that has its task completes it.
"""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core.declaration import Declaration, did_you_mean, with_fields
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import task_limit, with_declared
from forge_jobs.core.names import kind_name, queue_name
from forge_jobs.core.schedule import CronSpec
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.store.published_kinds import PublishedKinds

from .published_kinds_cache import PublishedKindsCache
from .routing import Router

_LOG = logging.getLogger("forge_jobs.client")


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
        self._warned: set[str] = set()

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

    def declaration(self, kind: str) -> Declaration | None:
        """What this program's task or handler declares for the kind, if it has one."""
        return self._handlers.declaration(kind)

    def route(self, kind: str) -> str:
        """The queue of a kind: what is declared here, else the router, else what is published."""
        return self._named_queue(kind) or DEFAULT_QUEUE

    def _named_queue(self, kind: str) -> str | None:
        """The queue of a kind; None if neither this program nor a worker has said anything."""
        declared = self.declared_queue(kind)
        if declared is not None:
            return declared
        if self._router is not None:
            return queue_name(self._router.route(kind))
        published = self._published.current().queues.get(kind)
        if published is None and self._handlers.get(kind) is not None:
            return DEFAULT_QUEUE
        return published

    def request(
        self,
        kind: str,
        value: object,
        fields: Mapping[str, Any] | None = None,
        *,
        what: str = "payload",
        check: bool = True,
    ) -> NewJob:
        """The request for a job with the payload ``value``; ``fields`` are checked fields of NewJob
        that the caller gives, what the task declares holds for the others.

        Arguments are checked against the signature if the task is registered here; else, with
        ``check``, their names against what workers have published.
        """
        given = fields or {}
        task = self._tasks.get(kind_name(kind))
        if task is not None:
            return with_fields(task.bind_payload(value), given, where=f"a job of kind {kind!r}")
        published = self._known_kinds(kind)
        if check:
            published.check(kind, value, remedy="forge.enqueue(…, check=False)")
            self._warn_of_typo(kind, published)
        data = published.encode(kind, value, what=what)
        job = published.new_job(kind, given.get("queue") or self._named_queue(kind), data, given)
        declared = self._handlers.limits.get(task_limit(kind))
        return job if declared is None else apply_limit(job, with_declared(None, declared, 0))

    def _known_kinds(self, kind: str) -> PublishedKinds:
        """What is published; a task or handler of this program comes first."""
        published = self._published.current()
        here = self._handlers.declaration(kind)
        if here is None:
            return published
        return PublishedKinds(published.queues, published.limits, {kind: here})

    def _warn_of_typo(self, kind: str, published: PublishedKinds) -> None:
        # Not refused: a producer may be deployed before the worker that has the task.
        known = published.queues
        if not known or kind in known or kind in published.declarations or kind in self._warned:
            return
        hint = did_you_mean(kind, known)
        if hint.endswith("?"):
            self._warned.add(kind)
            _LOG.warning("no worker has published the kind %r%s The job waits for one", kind, hint)

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
            declared=self.declaration(schedule.kind),
            queue=self.declared_queue(schedule.kind),
            route=None if router is None else router.route,
            tick=tick,
            run_at=run_at,
        )
