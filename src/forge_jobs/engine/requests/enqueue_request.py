"""The lower-level request for a job: a kind and a plain payload, without a task behind it."""

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from forge_jobs.core import payload
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Duration, from_datetime, seconds
from forge_jobs.core.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, Enqueued, NewJob
from forge_jobs.core.names import key_text, kind_name, queue_name, tag_list

from .routing import Router

EnqueueOutcome: TypeAlias = Enqueued
FinalizeOutcome: TypeAlias = Finish


class EnqueueRequest(Struct, frozen=True, kw_only=True):
    """One job to store. ``queue`` None: the router decides. Lower ``priority`` goes first."""

    kind: str
    payload: Any = {}
    queue: str | None = None
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    dedupe_key: str | None = None
    scheduled_at: datetime | None = None
    delay: Duration | None = None
    tags: tuple[str, ...] = ()

    def new_job(self, router: Router) -> NewJob:
        """The checked request. Raises BadName, BadOption, BadTime, BadDuration or BadPayload."""
        if self.max_attempts < 1:
            raise BadOption(f"max_attempts={self.max_attempts!r} must be at least 1")
        if self.delay is not None and self.scheduled_at is not None:
            raise BadOption("give delay or scheduled_at, not both")
        kind = kind_name(self.kind)
        run_at = self.scheduled_at
        return NewJob(
            kind=kind,
            queue=queue_name(self.queue if self.queue is not None else router.route(kind)),
            payload=payload.encode(self.payload),
            priority=self.priority,
            max_attempts=self.max_attempts,
            delay_s=0.0 if self.delay is None else seconds(self.delay, field="delay"),
            run_at=None if run_at is None else from_datetime(run_at, field="scheduled_at"),
            dedupe_key=(
                None if self.dedupe_key is None else key_text("dedupe_key", self.dedupe_key)
            ),
            tags=tag_list(self.tags),
        )
