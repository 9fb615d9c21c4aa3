"""EnqueueRequest: a job by its kind and a plain payload, for ``QueueRuntime``."""

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Duration, from_datetime, seconds
from forge_jobs.core.job import Enqueued
from forge_jobs.core.names import key_text, kind_name, queue_name, tag_list
from forge_jobs.store.enqueuer import Enqueuer

from .job_requests import JobRequests

EnqueueOutcome: TypeAlias = Enqueued
FinalizeOutcome: TypeAlias = Finish


class EnqueueRequest(Struct, frozen=True, kw_only=True):
    """One job to store, by its kind.

    ``payload`` is any JSON value. ``queue`` None: the runtime's router names it. ``priority`` and
    ``max_attempts`` None, ``tags`` empty: what the task declares, else 0, 5 and none. Lower
    ``priority`` is claimed first. ``delay`` or ``scheduled_at`` (an aware datetime), not both,
    starts it later. ``check`` False: the names of the arguments may differ from what is published.

    >>> EnqueueRequest(kind="send", payload={"to": "a@b.c"}, queue="mail", delay="10m").kind
    'send'
    """

    kind: str
    payload: Any = {}
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    dedupe_key: str | None = None
    scheduled_at: datetime | None = None
    delay: Duration | None = None
    tags: tuple[str, ...] = ()
    check: bool = True

    def fields(self) -> dict[str, Any]:
        """The checked fields of a NewJob, without kind and payload. Raises BadName, BadOption,
        BadTime or BadDuration."""
        if self.max_attempts is not None and self.max_attempts < 1:
            raise BadOption(f"max_attempts={self.max_attempts!r} must be at least 1")
        if self.delay is not None and self.scheduled_at is not None:
            raise BadOption("give delay or scheduled_at, not both")
        given = {"priority": self.priority, "max_attempts": self.max_attempts}
        fields: dict[str, Any] = {name: one for name, one in given.items() if one is not None}
        if self.tags:
            fields["tags"] = tag_list(self.tags)
        if self.queue is not None:
            fields["queue"] = queue_name(self.queue)
        if self.delay is not None:
            fields["delay_s"] = seconds(self.delay, field="delay")
        if self.scheduled_at is not None:
            fields["run_at"] = from_datetime(self.scheduled_at, field="scheduled_at")
        if self.dedupe_key is not None:
            fields["dedupe_key"] = key_text("dedupe_key", self.dedupe_key)
        return fields


async def store_request(
    request: EnqueueRequest, requests: JobRequests, enqueuer: Enqueuer
) -> EnqueueOutcome:
    """Store the job that ``request`` describes, with what its task declares and the hooks."""
    kind, fields = kind_name(request.kind), request.fields()
    if not requests.is_current(kind):
        await requests.refresh()
    job = requests.request(kind, request.payload, fields, check=request.check)
    (stored,) = await enqueuer.aenqueue([job])
    return stored
