"""Run everything that is due, here and now: a worker process for the length of one call.

It registers, claims and leaves like any other, on the caller's loop and without services. For
tests and scripts.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from msgspec import Struct

from forge_jobs.config import DEFAULT_QUEUE_WORKERS, EngineSettings
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import BadOption
from forge_jobs.core.names import queue_name
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.io_thread import IoThread
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.processes import ProcessStats
from forge_jobs.store.store import Store

from .claiming.dispatcher import Dispatcher
from .claiming.exchange_loop import ExchangeLoop
from .claiming.local_queue import LocalQueue
from .liveness.registration import ProcessInfo, Registration
from .requests.job_requests import JobRequests
from .requests.opened_store import OpenedStore
from .requests.published_kinds_cache import PublishedKindsCache
from .requests.routing import DefaultRouter, Router
from .running.context import RunEnvironment
from .running.in_flight import InFlightJobs, InFlightParts
from .running.job_loop import JobLoop
from .running.rate_limit import RateLimiter, store_of
from .running.registry import HandlerRegistry
from .running.run import Run, StopReason
from .running.run_log import RunLog

T = TypeVar("T")
_LOOK_S = 0.002
_MAX_ERRORS = 5


class DrainReport(Struct, frozen=True, kw_only=True):
    """What ran. ``failed`` wait for their retry; ``put_off`` were snoozed, throttled or had no
    handler; a run that was cancelled meanwhile counts by what its handler did."""

    ran: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    put_off: int = 0


class _CountingLog(RunLog):
    """A journal that also counts; successes are what is left."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        self.failed = self.dead = self.put_off = 0

    def ended(self, run: Run, finish: Finish) -> None:
        super().ended(run, finish)
        if finish.status is JobStatus.DEAD:
            self.dead += 1
        elif finish.event in (Event.FAIL, Event.CRASH):
            self.failed += 1
        else:
            self.put_off += 1


class _InlineIo:
    """An I/O port on the caller's own loop, also for handlers in threads."""

    def __init__(self, job_loop: JobLoop) -> None:
        self._job_loop = job_loop

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T] | asyncio.Task[T]":
        loop = self._job_loop.loop
        if self._job_loop.is_here:
            return loop.create_task(work())
        return asyncio.run_coroutine_threadsafe(work(), loop)


class _DrainProcess:
    """The short life of a draining process."""

    def __init__(
        self,
        store: Store,
        registry: HandlerRegistry,
        queues: Sequence[str],
        *,
        clock: Clock,
        entropy: Entropy,
        settings: EngineSettings,
        router: Router | None,
        requests: JobRequests | None,
    ) -> None:
        job_loop = JobLoop(asyncio.get_running_loop())
        self._clock = clock
        self.member = Registration(
            store.processes,
            ProcessInfo(tuple(queues), lambda host_id: f"drain-{host_id}"),
            settings=settings,
            clock=clock,
            entropy=entropy,
            stats=lambda: ProcessStats(running=self.floor.running),
            news=lambda: job_loop.post(self._news),
        )
        self.journal = _CountingLog(store.tag)
        here = _InlineIo(job_loop)
        # A coroutine that calls ctx.enqueue() blocks the loop: its jobs are stored from elsewhere.
        self.aside = IoThread()
        limiter = RateLimiter(store_of(store), here, declared=registry.rate_limits, clock=clock)
        if requests is None:
            kinds = PublishedKindsCache(OpenedStore(store, here), clock)
            requests = JobRequests(registry, kinds, router=router or DefaultRouter())
        self.floor = InFlightJobs(
            InFlightParts(settings, clock, entropy, self.member.standing, self.journal),
            RunEnvironment(
                self.member.host_id,
                store.tag,
                clock,
                Enqueuer(OpenedStore(store, self.aside), registry.around_enqueue),
                requests.request,
                limiter=lambda: limiter,
            ),
            job_loop,
        )
        for name in queues:
            lane = LocalQueue(name, self.floor, now=clock.mono(), backoff=settings.backoff)
            lane.target = DEFAULT_QUEUE_WORKERS
            self.floor.lanes[name] = lane
        intake = Dispatcher(self.floor, registry, isolate_from=settings.isolate_after_crashes)
        self.exchange_loop = ExchangeLoop(
            self.floor, intake, store.jobs, self, settings=settings, clock=clock, entropy=entropy
        )

    @property
    def owner(self) -> int:
        return self.member.owner

    def control_changed(self) -> None:
        """A drain follows no operator: the store itself refuses paused queues."""

    def doubt_lease(self) -> None:
        """The store does not hold this process for alive."""
        self.member.lease.doubt()

    async def begin_anew(self) -> None:
        await self.member.join_anew()

    async def work(self) -> None:
        """Until nothing is due and nothing runs."""
        floor, exchange_loop = self.floor, self.exchange_loop
        while not self._is_over():
            if exchange_loop.errors >= _MAX_ERRORS and exchange_loop.trouble is not None:
                raise exchange_loop.trouble
            if not floor.held and floor.finish_buffer.is_empty:
                exchange_loop.hint()
            await self._clock.sleep(_LOOK_S)
        floor.is_open = exchange_loop.claiming = False

    def _is_over(self) -> bool:
        floor, exchange_loop = self.floor, self.exchange_loop
        spent = exchange_loop.claims_left is not None and exchange_loop.claims_left <= 0
        return (
            (exchange_loop.came_back_empty or spent)
            and not floor.held
            and floor.finish_buffer.is_empty
        )

    def _news(self) -> None:
        self.floor.bell.notify()


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
    visit = _DrainProcess(
        store,
        registry,
        names,
        clock=clock,
        entropy=entropy,
        settings=settings or EngineSettings(),
        router=router,
        requests=requests,
    )
    visit.exchange_loop.claims_left = limit
    await visit.member.join()
    parts = [
        asyncio.create_task(visit.exchange_loop.run()),
        asyncio.create_task(visit.member.lease.keep()),
    ]
    try:
        await visit.work()
    finally:
        visit.floor.interrupt_all(StopReason.SHUTDOWN)
        visit.floor.watch.close()
        for part in parts:
            part.cancel()
        await asyncio.wait(parts)
        await visit.floor.places.close()
        await asyncio.to_thread(visit.aside.close)
        await visit.member.leave()
    return _report(visit)


async def _queues(store: Store, registry: HandlerRegistry) -> list[str]:
    names = [config.name for config in await store.queues.all()]
    names += [count.queue for count in await store.metrics.counts()]
    names += [queue for queue in registry.kinds().values() if queue is not None]
    return list(dict.fromkeys(names))


def _report(visit: _DrainProcess) -> DrainReport:
    journal = visit.journal
    ran = visit.floor.written
    return DrainReport(
        ran=ran,
        done=ran - journal.failed - journal.dead - journal.put_off,
        failed=journal.failed,
        dead=journal.dead,
        put_off=journal.put_off,
    )
