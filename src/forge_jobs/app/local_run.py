"""What stands in for a worker when a task is called like a plain function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from forge_jobs.client.store_access import StoreAccess
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import LogLine, NewJob
from forge_jobs.engine.running.context import Context, JobInfo, RunEnvironment
from forge_jobs.engine.running.rate_limit import RateLimiter
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid

HOST_ID = "local"


@dataclass(slots=True)
class _LocalLink:
    """Nobody can cancel a plain call, and nothing is written while it runs."""

    successors: list[NewJob] = field(default_factory=list[NewJob])
    stop_reason: str | None = None

    def report(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        pass

    def add_successor(self, job: NewJob) -> None:
        self.successors.append(job)


class LocalRun:
    """One plain call. What it put off with ``ctx.on_done`` is enqueued once it has succeeded."""

    def __init__(self, context: Context, link: _LocalLink, access: StoreAccess) -> None:
        self.context = context
        self._link = link
        self._access = access

    def succeeded(self) -> None:
        if self._link.successors:
            self._access.enqueue(self._link.successors)

    async def asucceeded(self) -> None:
        if self._link.successors:
            await self._access.aenqueue(self._link.successors)


@dataclass(frozen=True, slots=True)
class LocalRuns:
    """Makes the runs of plain calls."""

    access: StoreAccess
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
        around = RunEnvironment(
            host_id=lambda: HOST_ID,
            tag=0,
            clock=self.clock,
            enqueuer=self.access,
            request=self.request,
            limiter=self.limiter,
        )
        link = _LocalLink()
        return LocalRun(Context(info, link, around), link, self.access)
