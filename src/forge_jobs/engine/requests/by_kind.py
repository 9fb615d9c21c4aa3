"""Jobs that are named by their kind alone, become requests: which queue, and what binds them."""

from typing import Any, Protocol

from forge_jobs.core import payload
from forge_jobs.core.job import NewJob
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import task_limit, with_declared
from forge_jobs.core.names import kind_name
from forge_jobs.engine.running.registry import HandlerRegistry

from .published_kinds import PublishedKinds
from .routing import Router


class RequestFactory(Protocol):
    """Turns a kind and a payload into a request, without waiting."""

    def request(self, kind: str, value: Any) -> NewJob:
        """The request; its limits are those of the task, wherever that is registered."""
        ...


class ByKind:
    """For handlers without tasks: the queue is that of the handler, else what the router says;
    limits are those declared here, else what others have published."""

    def __init__(self, handlers: HandlerRegistry, router: Router, others: PublishedKinds) -> None:
        self._handlers = handlers
        self._router = router
        self._others = others

    def request(self, kind: str, value: Any) -> NewJob:
        """The request for one job."""
        handler = self._handlers.get(kind_name(kind))
        queue = None if handler is None else handler.queue
        body = payload.encode(value)
        return self.bound(NewJob(kind=kind, queue=queue or self._router.route(kind), payload=body))

    def bound(self, job: NewJob) -> NewJob:
        """A request with what the limits of its task mean for it."""
        declared = self._handlers.limits.get(task_limit(job.kind))
        if declared is not None:
            return apply_limit(job, with_declared(None, declared, 0))
        if self._handlers.get(job.kind) is not None:
            return job
        return self._others.aside().bound(job)
