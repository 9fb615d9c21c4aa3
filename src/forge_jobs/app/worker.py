"""``async with forge.worker(...)``: a worker inside the user's own process."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from forge_jobs import config
from forge_jobs.client.job_client import JobClient, LocalWorker
from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import NoQueues, Refused
from forge_jobs.core.schedule import CronSpec
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

if TYPE_CHECKING:
    from forge_jobs.engine.runtime import QueueHandle, QueueRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """Everything a worker is started with; ``queues`` is called when it starts."""

    client: JobClient
    registry: HandlerRegistry
    requests: JobRequests
    clock: Clock
    entropy: Entropy
    settings: EngineSettings
    queues: Callable[[], Mapping[str, int]]
    schedules: Callable[[], Sequence[CronSpec]] = tuple
    prefix: str | None = None
    version: str | None = None
    worker_id: str | None = None
    replaces: str | None = None
    shutdown_timeout_s: float = config.DEFAULT_SHUTDOWN_TIMEOUT


class Worker:
    """Starts on entering and drains on leaving; entering gives the QueueHandle."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._handle: QueueHandle | None = None
        self._local: LocalWorker | None = None
        self._pid = os.getpid()

    async def __aenter__(self) -> "QueueHandle":
        if self._handle is not None:
            raise Refused("this worker is running already: call forge.worker() for another one")
        self._pid = os.getpid()
        runtime = await self._runtime()
        self._handle = await runtime.start()
        self._local = LocalWorker(asyncio.get_running_loop(), self._handle.request_cancel)
        self._plan.client.workers.append(self._local)
        return self._handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        handle, local = self._handle, self._local
        if handle is None or local is None:
            return
        if self._pid != os.getpid():
            raise Refused(
                f"this worker belongs to process {self._pid}, from which this one was forked: "
                "start workers after the fork"
            )
        self._handle = self._local = None
        try:
            await handle.shutdown_graceful(self._plan.shutdown_timeout_s)
        finally:
            if local in self._plan.client.workers:
                self._plan.client.workers.remove(local)

    async def _runtime(self) -> "QueueRuntime":
        # Producers never pay for the engine: it is imported where a worker starts.
        from forge_jobs.engine.runtime import QueueRuntime

        plan = self._plan
        queues = plan.queues()
        access = plan.client.access
        await plan.requests.refresh()
        runtime = QueueRuntime(
            await access.aready(),
            plan.registry,
            settings=plan.settings,
            clock=plan.clock,
            entropy=plan.entropy,
            io=access.io,
            requests=plan.requests,
        ).with_queues(queues)
        runtime = runtime.with_schedules(plan.schedules())
        prefix = plan.prefix or config.worker_prefix_from_env()
        version = plan.version or config.worker_version_from_env()
        worker_id = plan.worker_id or config.worker_id_from_env()
        if prefix is not None:
            runtime = runtime.with_worker_prefix(prefix)
        if version is not None:
            runtime = runtime.with_worker_version(version)
        if worker_id is not None:
            runtime = runtime.with_worker_id(worker_id)
        if plan.replaces is not None:
            runtime = runtime.with_replaced(plan.replaces)
        return runtime


def no_queues(known: list[str]) -> NoQueues:
    """The error of a worker without a queue; ``known`` are the queues of the registered tasks."""
    names = known or ["mail"]
    listed = ", ".join(repr(name) for name in names)
    of_tasks = " (the queues of its tasks)" if known else ""
    return NoQueues(
        f"the worker has no queue to serve: pass queues=[{listed}]{of_tasks}, or set "
        f"FORGE_QUEUES={','.join(names)}, or put a [queues] table into forge.toml"
    )
