"""``async with forge.worker(...)``: a worker inside the user's own process."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict

from forge_jobs import config
from forge_jobs.client.job_client import JobClient, LocalWorker
from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import NoQueues, Refused
from forge_jobs.core.instant import Duration
from forge_jobs.core.schedule import CronSpec
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.running_loop import has_running_loop
from forge_jobs.store.joined import not_joined

from .worker_signals import WorkerSignals

if TYPE_CHECKING:
    from forge_jobs.engine.runtime import QueueHandle, QueueRuntime

Queues = Iterable[str] | Mapping[str, int]
_LOG = logging.getLogger("forge_jobs.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker is started with; ``queues`` and ``schedules`` are called when it starts."""

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
    signals: bool = False


class WorkerKeywords(TypedDict, total=False):
    """The keywords of ``forge.run``: those of ``forge.worker``.

    >>> async def main() -> None:
    ...     async with forge.worker(["mail"], prefix="shop", version="2.1"):
    ...         await send.aenqueue("a@b.c")
    >>> asyncio.run(main())
    """

    slots: int | None
    prefix: str | None
    version: str | None
    worker_id: str | None
    replaces: str | None
    settings: EngineSettings | None
    shutdown_timeout: Duration


class EmbeddedWorker:
    """A worker in this process: ``async with forge.worker(...) as handle``.

    Entering starts it and returns its ``QueueHandle``; leaving stops it gracefully. With signals
    the first SIGTERM or SIGINT ends the block by a cancel, and the program goes on after it; the
    second one ends the time that running jobs have.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._handle: QueueHandle | None = None
        self._local: LocalWorker | None = None
        self._signals: WorkerSignals | None = None
        self._was_signalled = False
        self._pid = os.getpid()

    async def __aenter__(self) -> "QueueHandle":
        if self._handle is not None:
            raise Refused("this worker is running already: call forge.worker() for another one")
        self._pid = os.getpid()
        if self._options.signals:
            self._signals = WorkerSignals(self._end_grace)
            self._signals.install()
        try:
            runtime = await self._runtime()
            with not_joined():
                self._handle = await runtime.start()
        except BaseException:
            signals = self._signals
            self._restore_signals()
            self._was_signalled = signals is not None and signals.swallow_cancel()
            raise
        self._local = LocalWorker(asyncio.get_running_loop(), self._handle.request_cancel)
        self._options.client.workers.append(self._local)
        return self._handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """True, which swallows the cancel, if a signal ended the block."""
        handle, local = self._handle, self._local
        if handle is None or local is None:
            return False
        if self._pid != os.getpid():
            raise Refused(
                f"this worker belongs to process {self._pid}, from which this one was forked: "
                "start workers after the fork"
            )
        self._local = None
        signals = self._signals
        if signals is not None:
            signals.draining = True
        try:
            await handle.shutdown_graceful(self._options.shutdown_timeout_s)
        finally:
            self._handle = None
            self._restore_signals()
            if local in self._options.client.workers:
                self._options.client.workers.remove(local)
        if signals is None or not isinstance(error, asyncio.CancelledError):
            return False
        return signals.swallow_cancel()

    async def serve(self) -> None:
        """Run until a signal comes; needs ``signals``."""
        try:
            async with self:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self._was_signalled:
                raise  # by somebody else; a signal during the start ends here

    def _end_grace(self) -> None:
        if self._handle is not None:
            self._handle.end_grace()

    def _restore_signals(self) -> None:
        if self._signals is not None:
            self._signals.restore()
            self._signals = None

    async def _runtime(self) -> "QueueRuntime":
        # Imported here: producers do not load the engine.
        from forge_jobs.engine.runtime import QueueRuntime

        options = self._options
        queues = options.queues()
        if not options.registry.kinds():
            _LOG.warning(
                "this worker has no task: jobs of %s wait for another one. Import the modules that "
                "define its tasks before it starts",
                ", ".join(queues),
            )
        access = options.client.access
        declared = options.registry.alerts
        options.registry.alerts = {rule.name: rule for rule in config.alerts()} | declared
        await options.requests.refresh()
        runtime = QueueRuntime(
            await access.aready(),
            options.registry,
            settings=options.settings,
            clock=options.clock,
            entropy=options.entropy,
            io=access.io,
            requests=options.requests,
        ).with_queues(queues)
        runtime = runtime.with_schedules(options.schedules())
        prefix = options.prefix or config.worker_prefix_from_env()
        version = options.version or config.worker_version_from_env()
        worker_id = options.worker_id or config.worker_id_from_env()
        if prefix is not None:
            runtime = runtime.with_worker_prefix(prefix)
        if version is not None:
            runtime = runtime.with_worker_version(version)
        if worker_id is not None:
            runtime = runtime.with_worker_id(worker_id)
        if options.replaces is not None:
            runtime = runtime.with_replaced(options.replaces)
        return runtime


def run_worker(worker: EmbeddedWorker, close: Callable[[], Awaitable[None]]) -> None:
    """Run a worker with signals on an event loop of its own, then ``close``."""

    async def serve() -> None:
        try:
            await worker.serve()
        finally:
            await close()

    if has_running_loop():
        raise Refused(
            "forge.run() would block the event loop of this thread: "
            "use `async with forge.worker(signals=True)` instead"
        )
    asyncio.run(serve())


def served_queues(
    queues: Queues | None, slots: int | None, declared: Mapping[str, int], task_queues: list[str]
) -> Mapping[str, int]:
    """The queues that a worker serves, with the slots they get if they are new.

    ``queues`` are those of the call; without them FORGE_QUEUES, else ``declared`` and forge.toml,
    else ``task_queues``, those of the registered tasks. NoQueues when there is none.
    """
    default = config.DEFAULT_QUEUE_WORKERS
    if slots is not None:
        default = config.slot_count(slots, source="slots")
    if queues is not None:
        chosen = config.parse_queues(queues, slots=declared, default=default)
    else:
        settings = config.load()
        chosen = {**({} if settings.queues_from_env else declared), **settings.queues}
    if queues is None and not chosen and task_queues:
        chosen = dict.fromkeys(task_queues, default)
        listed = ", ".join(f"{name}:{slots}" for name, slots in chosen.items())
        _LOG.info("serving %s: the queues of the registered tasks", listed)
    if not chosen:
        raise _no_queues(task_queues)
    return chosen


def _no_queues(known: list[str]) -> NoQueues:
    """The error of a worker without a queue; ``known`` are the queues of the registered tasks."""
    names = known or ["mail"]
    listed = ", ".join(repr(name) for name in names)
    why = (
        "the worker has no queue to serve: leave queues= out to serve those of its tasks, or"
        if known
        else "the worker has no task and no queue to serve: import the modules that define its "
        "tasks before it starts, or"
    )
    return NoQueues(
        f"{why} pass queues=[{listed}], or set FORGE_QUEUES={','.join(names)}, or put a [queues] "
        "table into forge.toml"
    )
