"""Runs everything that is due, here and now: a worker process for the length of one call.

It registers, claims and deregisters like any other, on the caller's loop and without services. For
tests and scripts.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from msgspec import Struct

from forge_jobs.config import DEFAULT_QUEUE_WORKERS, EngineSettings
from forge_jobs.core.errors import BadOption
from forge_jobs.core.names import queue_name
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.io_thread import IoThread
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.processes import ProcessStats
from forge_jobs.store.store import Store

from .liveness.registration import ProcessInfo
from .requests.job_requests import JobRequests
from .requests.opened_store import OpenedStore
from .requests.published_kinds_cache import PublishedKindsCache
from .requests.routing import DefaultRouter, Router
from .running.job_loop import JobLoop
from .running.registry import HandlerRegistry
from .running.run import StopReason
from .running.run_log import RunLog
from .worker_parts import WorkerInputs, WorkerParts

T = TypeVar("T")
_POLL_S = 0.002
_MAX_ERRORS = 5


class DrainReport(Struct, frozen=True, kw_only=True):
    """What ran. ``failed`` wait for their retry; ``put_off`` were snoozed, throttled or had no
    handler; a run that was cancelled meanwhile counts by what its handler did."""

    ran: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    put_off: int = 0


class _InlineIo:
    """An I/O port on the caller's own loop; handlers in threads may use it too."""

    def __init__(self, job_loop: JobLoop) -> None:
        self._job_loop = job_loop

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T] | asyncio.Task[T]":
        loop = self._job_loop.loop
        if self._job_loop.is_here:
            return loop.create_task(work())
        return asyncio.run_coroutine_threadsafe(work(), loop)


class _Drain:
    """The parts of a worker process, used until there is nothing left to do."""

    def __init__(self, inputs: WorkerInputs, limit: int | None) -> None:
        self._clock = inputs.clock
        self.run_log = RunLog(inputs.store.tag)
        self.parts = WorkerParts(
            inputs,
            stats=lambda: ProcessStats(running=self.parts.in_flight.running),
            run_log=self.run_log,
            # Operators do not change a drain: the store itself claims nothing from paused queues.
            on_control_change=lambda: None,
            max_claims=limit,
        )
        for name, slots in inputs.queues.items():
            self.parts.local_queues.by_name[name].set_slots(slots)

    async def work(self) -> None:
        """Wait until nothing is due and nothing runs."""
        parts, exchange_loop = self.parts, self.parts.exchange_loop
        while not self._is_finished():
            if exchange_loop.errors >= _MAX_ERRORS and exchange_loop.last_error is not None:
                raise exchange_loop.last_error
            if not parts.in_flight.held and parts.finish_buffer.is_empty:
                exchange_loop.claim_now()
            await self._clock.sleep(_POLL_S)
        parts.local_queues.close()

    def _is_finished(self) -> bool:
        parts, exchange_loop = self.parts, self.parts.exchange_loop
        spent = exchange_loop.claims_left is not None and exchange_loop.claims_left <= 0
        return (
            (spent or exchange_loop.empty_queues >= parts.local_queues.by_name.keys())
            and not parts.in_flight.held
            and parts.finish_buffer.is_empty
            and parts.step_buffer.is_empty
        )

    async def run(self) -> DrainReport:
        """Register, run what is due, deregister."""
        parts = self.parts
        await parts.registration.register()
        tasks = [
            asyncio.create_task(parts.exchange_loop.run()),
            asyncio.create_task(parts.registration.lease.run()),
        ]
        try:
            await self.work()
        finally:
            parts.in_flight.interrupt_all(StopReason.SHUTDOWN)
            tasks += parts.in_flight.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await parts.in_flight.executors.close()
            await parts.registration.deregister()
        return self._report()

    def _report(self) -> DrainReport:
        run_log = self.run_log
        ran = self.parts.in_flight.written
        return DrainReport(
            ran=ran,
            done=ran - run_log.failed - run_log.dead - run_log.put_off,
            failed=run_log.failed,
            dead=run_log.dead,
            put_off=run_log.put_off,
        )


async def drain(
    store: Store,
    registry: HandlerRegistry,
    *,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
    settings: EngineSettings | None = None,
    queues: Sequence[str] | None = None,
    limit: int | None = None,
    router: Router | None = None,
    requests: JobRequests | None = None,
) -> DrainReport:
    """Run what is due, and what that enqueues, until nothing is left; at most ``limit`` jobs.

    ``queues`` None: all there are. Jobs that wait for a retry or a later time stay where they are.
    """
    if limit is not None and limit < 1:
        raise BadOption(f"drain(limit={limit!r}) must be at least 1")
    await store.open()
    names = await _queues(store, registry) if queues is None else [*map(queue_name, queues)]
    if not names:
        return DrainReport()

    inline_io = _InlineIo(JobLoop(asyncio.get_running_loop()))
    # A coroutine that calls ctx.enqueue() blocks the loop: its jobs are stored by this thread.
    enqueue_io = IoThread()
    if requests is None:
        kinds = PublishedKindsCache(OpenedStore(store, inline_io), clock)
        requests = JobRequests(registry, kinds, router=router or DefaultRouter())
    inputs = WorkerInputs(
        store=store,
        handlers=registry,
        queues=dict.fromkeys(names, DEFAULT_QUEUE_WORKERS),
        settings=settings or EngineSettings(),
        clock=clock,
        entropy=entropy,
        io=inline_io,
        enqueuer=Enqueuer(OpenedStore(store, enqueue_io), registry.around_enqueue),
        requests=requests,
        info=ProcessInfo(tuple(names), lambda host_id: f"drain-{host_id}"),
    )
    try:
        return await _Drain(inputs, limit).run()
    finally:
        await asyncio.to_thread(enqueue_io.close)


async def _queues(store: Store, registry: HandlerRegistry) -> list[str]:
    names = [config.name for config in await store.queues.all()]
    names += [count.queue for count in await store.metrics.counts()]
    names += [queue for queue in registry.kinds().values() if queue is not None]
    return list(dict.fromkeys(names))
