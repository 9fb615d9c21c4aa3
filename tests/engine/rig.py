"""A small worker for tests: handlers by function, jobs by kind, waiting with a deadline."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from forge_jobs.config import EngineSettings
from forge_jobs.core import payload
from forge_jobs.core.job import ClaimedJob, JobRecord, NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import Handler, HandlerRegistry, RunIn
from forge_jobs.engine.runtime import QueueHandle, QueueRuntime
from forge_jobs.store.store import Store

DEADLINE_S = 60.0
# On a busy machine the calls of a shutdown may need seconds.
FAST = EngineSettings(lease_s=10.0, shutdown_s=10.0, poll_s=0.2, control_s=0.1)
ENDED = (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)

Body = Callable[[Context, Any], Any]


async def until(is_so: Callable[[], bool | Awaitable[bool]], what: str = "") -> None:
    """Wait for a condition, generously."""
    end = time.monotonic() + DEADLINE_S
    while True:
        answer = is_so()
        if await answer if inspect.isawaitable(answer) else answer:
            return
        assert time.monotonic() < end, f"waited {DEADLINE_S:.0f} s in vain: {what}"
        await asyncio.sleep(0.005)


class Rig:
    """One store, one registry, as many workers as a test wants."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.registry = HandlerRegistry()

    def on(self, kind: str, body: Body, **options: Any) -> None:
        """Register ``body(ctx, payload)``; a coroutine function runs on the loop."""
        run_in = RunIn.LOOP if inspect.iscoroutinefunction(body) else RunIn.THREAD

        def call(data: bytes, make_context: Callable[[], Context]) -> Any:
            return body(make_context(), payload.decode(data))

        options.setdefault("run_in", run_in)
        self.registry.register(Handler(kind=kind, call=call, **options))

    async def add(self, kind: str, body: Any = None, **options: Any) -> str:
        """Enqueue one job into queue ``q``; its public id."""
        return (await self.add_many(kind, 1, body, **options))[0]

    async def add_many(self, kind: str, count: int, body: Any = None, **options: Any) -> list[str]:
        options.setdefault("queue", "q")
        data = payload.encode({} if body is None else body)
        jobs = [NewJob(kind=kind, payload=data, **options) for _ in range(count)]
        return [job.id for job in await self.store.jobs.enqueue(jobs)]

    def runtime(
        self,
        queues: Mapping[str, int] | None = None,
        *,
        settings: EngineSettings = FAST,
        **options: Any,
    ) -> QueueRuntime:
        return QueueRuntime(self.store, self.registry, settings=settings, **options).with_queues(
            {"q": 10} if queues is None else queues
        )

    @asynccontextmanager
    async def working(
        self, queues: Mapping[str, int] | None = None, **options: Any
    ) -> AsyncIterator[QueueHandle]:
        """A worker for the length of a block; it stops without grace."""
        handle = await self.runtime(queues, **options).start()
        try:
            yield handle
        finally:
            await handle.shutdown_graceful(0)

    async def record(self, job_id: str) -> JobRecord:
        record = await self.store.jobs.get(job_id)
        assert record is not None
        return record

    async def reaches(self, job_id: str, *statuses: JobStatus) -> JobRecord:
        """Wait until the job has one of these states (any end without naming one)."""
        wanted = statuses or ENDED

        async def there() -> bool:
            return (await self.record(job_id)).status in wanted

        await until(there, f"{job_id} becomes one of {wanted}")
        return await self.record(job_id)

    async def runs(self, kind: str, body: Any = None, **options: Any) -> JobRecord:
        """Enqueue one job, wait for an end or a planned retry, and give its record."""
        job_id = await self.add(kind, body, **options)
        return await self.reaches(job_id, *ENDED, JobStatus.FAILED, JobStatus.SCHEDULED)

    async def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for count in await self.store.metrics.counts():
            if count.jobs:
                found[count.status.value] = found.get(count.status.value, 0) + count.jobs
        return found


def a_claim(**changes: Any) -> ClaimedJob:
    """A claim for tests that need no store."""
    fields: dict[str, Any] = {
        "key": 1, "epoch": 1, "kind": "work", "queue": "q", "payload": b"{}", "attempts": 1,
        "max_attempts": 5, "enqueued_at": 1_000_000, "run_at": 1_000_000,
    }  # fmt: skip
    return ClaimedJob(**{**fields, **changes})
