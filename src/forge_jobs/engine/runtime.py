"""The lower-level way to run a worker: set up a ``QueueRuntime``; ``start`` returns a handle."""

import os
import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import cast

from forge_jobs.config import DEFAULT_SHUTDOWN_TIMEOUT, EngineSettings, parse_queues
from forge_jobs.core.errors import NoQueues
from forge_jobs.core.names import queue_name
from forge_jobs.core.schedule import CronSpec
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.io_thread import IoPort, IoThread
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

from .liveness.label import worker_label
from .liveness.registration import ProcessInfo
from .requests.enqueue_request import (
    EnqueueOutcome,
    EnqueueRequest,
    FinalizeOutcome,
    store_request,
)
from .requests.job_requests import JobRequests
from .requests.opened_store import OpenedStore
from .requests.published_kinds_cache import PublishedKindsCache
from .requests.routing import DefaultRouter, Router
from .running.rate_limit import RateLimiter
from .running.registry import HandlerRegistry
from .worker_parts import WorkerInputs
from .worker_process import WorkerProcess

__all__ = [
    "EnqueueOutcome",
    "EnqueueRequest",
    "FinalizeOutcome",
    "QueueHandle",
    "QueueRuntime",
]

_NO_QUEUES = (
    'the worker has no queue to serve: declare one with with_queues(["mail"]), '
    "or set FORGE_QUEUES=mail"
)


class QueueHandle:
    """A running worker process.

    >>> async def main() -> int:
    ...     async with forge.worker(["mail"]) as handle:
    ...         return handle.running
    >>> asyncio.run(main())
    0
    """

    def __init__(
        self,
        process: WorkerProcess,
        storage: Store,
        requests: JobRequests,
        enqueuer: Enqueuer,
        own_io: IoThread | None,
    ) -> None:
        self._process = process
        self._requests = requests
        self._enqueuer = enqueuer
        self._own_io = own_io
        self._stopped = False
        self.storage = storage

    @property
    def host_id(self) -> str:
        """The process's name in the store; another one after it was declared dead."""
        return self._process.host_id

    @property
    def lease_error(self) -> Exception | None:
        """Why the last heartbeat failed; None if it did not."""
        return self._process.lease_error

    @property
    def rate_limit(self) -> RateLimiter:
        """The permits of this process, as its handlers get them."""
        return self._process.rate_limit

    @property
    def running(self) -> int:
        """How many handlers run at this moment."""
        return self._process.running

    async def enqueue(self, request: EnqueueRequest) -> EnqueueOutcome:
        """Store one job; the router fills in a missing queue."""
        return await store_request(request, self._requests, self._enqueuer)

    def request_cancel(self, job_id: str) -> bool:
        """Cancel a job that runs in this process, at once; False if it does not run here."""
        return self._process.request_cancel(job_id)

    async def shutdown_graceful(self, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
        """Claim nothing more, let running jobs finish for ``timeout`` seconds, release the rest
        without spending an attempt, and deregister. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        try:
            await self._process.stop(timeout)
        finally:
            if self._own_io is not None:
                self._own_io.close()

    def end_grace(self) -> None:
        """During ``shutdown_graceful``: do not wait any longer, release what still runs now."""
        self._process.end_grace()


class QueueRuntime:
    """The set-up of a worker: which store, which handlers, which queues. The ``with_…`` methods
    return the runtime itself.

    >>> async def main() -> bool:
    ...     registry = HandlerRegistry()
    ...     registry.register(NoopEcho())
    ...     runtime = QueueRuntime(open_storage("memory://"), registry).with_queues(["default"])
    ...     handle = await runtime.start()
    ...     await runtime.enqueue(EnqueueRequest(kind="noop_echo", payload={"sleep_ms": 1}))
    ...     await handle.shutdown_graceful()
    ...     return bool(handle.host_id)
    >>> asyncio.run(main())
    True
    """

    def __init__(
        self,
        storage: Store,
        handlers: HandlerRegistry,
        router: Router | None = None,
        *,
        settings: EngineSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        io: IoPort | None = None,
        requests: JobRequests | None = None,
    ) -> None:
        self._storage = storage
        self._handlers = handlers
        self._router = DefaultRouter() if router is None else router
        self._settings = EngineSettings() if settings is None else settings
        self._clock = clock
        self._entropy = entropy
        self._io = io
        self._requests = requests
        self._enqueuing: tuple[JobRequests, Enqueuer] | None = None
        self._queues: dict[str, int] = {}
        self._prefix: str | None = None
        self._version: str | None = None
        self._worker_id: str | None = None
        self._replaces: str | None = None
        self._schedules: list[CronSpec] = []
        self._handle: QueueHandle | None = None

    def with_queues(self, queues: Iterable[str] | Mapping[str, int]) -> "QueueRuntime":
        """Serve these queues: ``["mail", "video:2"]`` or ``{"mail": 10}``; the number becomes the
        queue's cluster-wide slots if the queue is new."""
        if isinstance(queues, Mapping):
            self._queues = parse_queues(cast("Mapping[str, int]", queues))
        else:
            texts = queues.split(",") if isinstance(queues, str) else queues
            named = [text.strip() for text in cast("Iterable[str]", texts)]
            self._queues = parse_queues(list(dict.fromkeys(filter(None, named))))
        return self

    def with_worker_prefix(self, prefix: str) -> "QueueRuntime":
        """Call this process ``{prefix}-worker-…``."""
        self._prefix = prefix
        return self

    def with_worker_version(self, version: str) -> "QueueRuntime":
        """The version in the worker's name."""
        self._version = version
        return self

    def with_worker_id(self, worker_id: str) -> "QueueRuntime":
        """The last part of the worker's name; default: four digits made from the host_id."""
        self._worker_id = worker_id
        return self

    def with_replaced(self, host_id: str) -> "QueueRuntime":
        """This process takes the place of one that is known to be dead: its jobs are free when
        this one registers."""
        self._replaces = host_id
        return self

    def with_schedules(self, schedules: Iterable[CronSpec]) -> "QueueRuntime":
        """Declare these schedules when the process starts; see ``ensure_schedules``."""
        self._schedules = list(schedules)
        return self

    async def ensure_queue(self, name: str, slots: int) -> QueueConfig:
        """Create a queue's settings unless they exist."""
        await self._storage.open()
        return await self._storage.queues.ensure(queue_name(name), slots=slots)

    async def enqueue(self, request: EnqueueRequest) -> EnqueueOutcome:
        """Store one job; the router fills in a missing queue."""
        await self._storage.open()
        if self._enqueuing is None:
            port = OpenedStore(self._storage)
            self._enqueuing = self._new_requests(port), self._new_enqueuer(port)
        return await store_request(request, *self._enqueuing)

    async def start(self) -> QueueHandle:
        """Register and start working. NoQueues when no queue was declared."""
        if not self._queues:
            raise NoQueues(_NO_QUEUES)
        await self._storage.open()
        io: IoPort | None = self._io
        own_io: IoThread | None = None
        if io is None:
            io = own_io = IoThread()
        prefix, version, worker_id = self._prefix, self._version, self._worker_id
        port = OpenedStore(self._storage, io)
        requests, enqueuer = self._new_requests(port), self._new_enqueuer(port)
        process = WorkerProcess(
            WorkerInputs(
                store=self._storage,
                handlers=self._handlers,
                queues=self._queues,
                settings=self._settings,
                clock=self._clock,
                entropy=self._entropy,
                io=io,
                enqueuer=enqueuer,
                requests=requests,
                info=ProcessInfo(
                    tuple(self._queues),
                    lambda host_id: worker_label(
                        host_id,
                        prefix=prefix,
                        version=version,
                        worker_id=worker_id,
                        hostname=socket.gethostname(),
                        pid=os.getpid(),
                    ),
                    version or "",
                ),
                replaces=self._replaces,
                schedules=self._schedules,
            )
        )
        try:
            await process.start()
        except BaseException:
            if own_io is not None:
                own_io.close()
            raise
        return QueueHandle(process, self._storage, requests, enqueuer, own_io)

    def _new_requests(self, port: OpenedStore) -> JobRequests:
        if self._requests is not None:
            return self._requests
        kinds = PublishedKindsCache(port, self._clock)
        return JobRequests(self._handlers, kinds, router=self._router)

    def _new_enqueuer(self, port: OpenedStore) -> Enqueuer:
        return Enqueuer(port, self._handlers.around_enqueue)

    async def __aenter__(self) -> QueueHandle:
        self._handle = await self.start()
        return self._handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            await self._handle.shutdown_graceful()
