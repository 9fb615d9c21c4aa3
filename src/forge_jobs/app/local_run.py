"""Runs of tasks that are called like plain functions, without a worker."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forge_jobs.core import payload
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import LogLine, NewJob
from forge_jobs.engine.running.context import Context, JobInfo, RunEnvironment
from forge_jobs.engine.running.rate_limit import RateLimiter
from forge_jobs.engine.steps.handler_steps import HandlerSteps
from forge_jobs.engine.steps.local_steps import LocalSteps
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid
from forge_jobs.store.enqueuer import Enqueuer

HOST_ID = "local"
_LOG = logging.getLogger("forge_jobs.job")


@dataclass(slots=True)
class _LocalLink:
    """The link of a plain call: it cannot be cancelled, has no rare options, and progress and log
    lines are dropped."""

    job_id: str
    clock: Clock
    successors: list[NewJob] = field(default_factory=list[NewJob])
    stop_reason: str | None = None
    options: Mapping[str, Any] | None = None
    started_at: float = 0.0
    steps: HandlerSteps | None = None

    def report(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        pass

    def add_successor(self, job: NewJob) -> None:
        self.successors.append(job)

    def handler_steps(self) -> HandlerSteps:
        if self.steps is None:
            self.steps = HandlerSteps(LocalSteps(self.job_id, self.clock, _LOG.warning))
        return self.steps

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return payload.encode(args[0] if args else kwargs)


class LocalRun:
    """One plain call. Jobs given to ``ctx.on_done`` are enqueued once it has succeeded."""

    def __init__(self, context: Context, link: _LocalLink, enqueuer: Enqueuer) -> None:
        self.context = context
        self._link = link
        self._enqueuer = enqueuer

    def succeeded(self) -> None:
        """Enqueue what ``ctx.on_done`` was given."""
        if self._link.successors:
            self._enqueuer.enqueue(self._link.successors)

    async def asucceeded(self) -> None:
        """``succeeded`` for coroutines."""
        if self._link.successors:
            await self._enqueuer.aenqueue(self._link.successors)


@dataclass(frozen=True, slots=True)
class LocalRuns:
    """Makes the contexts of plain calls."""

    enqueuer: Enqueuer
    clock: Clock
    entropy: Entropy
    request: Callable[[str, Any], NewJob]
    limiter: Callable[[], RateLimiter]

    def __call__(self, template: NewJob) -> LocalRun:
        now = self.clock.now()
        info = JobInfo(
            id=new_ulid(now, self.entropy),
            kind=template.kind,
            queue=template.queue,
            attempts=1,
            max_attempts=template.max_attempts,
            enqueued_at=to_datetime(now),
            tags=template.tags,
        )
        environment = RunEnvironment(
            host_id=lambda: HOST_ID,
            tag=0,
            clock=self.clock,
            enqueuer=self.enqueuer,
            request=self.request,
            limiter=self.limiter,
        )
        link = _LocalLink(info.id, self.clock)
        return LocalRun(Context(info, link, environment), link, self.enqueuer)
