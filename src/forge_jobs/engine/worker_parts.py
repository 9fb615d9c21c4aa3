"""Builds the parts of a worker process and connects them: the only place where that happens.

``WorkerProcess`` adds the services to these parts; ``drain`` uses them for the length of one call,
without services.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from forge_jobs.config import EngineSettings
from forge_jobs.core.schedule import CronSpec
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.io_thread import IoPort
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.processes import ProcessStats
from forge_jobs.store.store import Store

from .claiming.dispatcher import Dispatcher
from .claiming.exchange_loop import ExchangeLoop
from .claiming.finish_buffer import FinishBuffer
from .claiming.local_queues import LocalQueues
from .claiming.step_buffer import StepBuffer
from .claiming.store_time import StoreTime
from .claiming.undeclared_jobs import UndeclaredJobs
from .claiming.wake_signal import WakeSignal
from .liveness.registration import ProcessInfo, Registration
from .requests.job_requests import JobRequests
from .running.alert_delivery import delivery_handler
from .running.context import RunEnvironment
from .running.in_flight import InFlightJobs
from .running.job_loop import JobLoop
from .running.logged_jobs import LoggedInFlightJobs
from .running.rate_limit import RateLimiter, store_of
from .running.registry import HandlerRegistry
from .running.run_log import RunLog

_MAX_UNWRITTEN = 256
_MAX_UNWRITTEN_OVERLAPPED = 1_024


@dataclass(frozen=True, slots=True)
class WorkerInputs:
    """What a process is built from. ``queues`` are names with the slots they get if they are
    new."""

    store: Store
    handlers: HandlerRegistry
    queues: Mapping[str, int]
    settings: EngineSettings
    clock: Clock
    entropy: Entropy
    io: IoPort
    enqueuer: Enqueuer
    requests: JobRequests
    info: ProcessInfo
    replaces: str | None = None
    schedules: Sequence[CronSpec] = ()


class WorkerParts:
    """Registration, in-flight jobs, local queues, finish buffer and exchange loop of one process.

    Built on the job loop. ``stats`` is what a heartbeat reports; it is called on the I/O side.
    ``overlap``: jobs run while the store writes; not where it would do so at their expense. For
    the rest see ``ExchangeLoop``; ``register_again`` None means the registration's own.
    """

    def __init__(
        self,
        inputs: WorkerInputs,
        *,
        stats: Callable[[], ProcessStats],
        run_log: RunLog,
        on_control_change: Callable[[], None],
        register_again: Callable[[], Awaitable[None]] | None = None,
        overlap: bool = False,
        max_claims: int | None = None,
    ) -> None:
        store, clock = inputs.store, inputs.clock
        inputs.handlers.add_built_in(delivery_handler(store))
        self.job_loop = JobLoop(asyncio.get_running_loop())
        self.registration = Registration(
            store.processes,
            inputs.info,
            settings=inputs.settings,
            clock=clock,
            entropy=inputs.entropy,
            stats=stats,
            signatures=inputs.handlers.signatures,
            on_change=lambda: self.job_loop.post(self._lease_changed),
        )
        self.rate_limit = RateLimiter(
            store_of(store), inputs.io, declared=inputs.handlers.rate_limits, clock=clock
        )
        self.store_time = StoreTime(clock)
        self.wake = WakeSignal(self.job_loop.loop)
        self.finish_buffer = self._new_finish_buffer(inputs.settings, overlap=overlap)
        self.step_buffer = StepBuffer(self.wake, overlap=overlap)
        self.in_flight = self._new_in_flight(inputs, run_log)
        self.local_queues = self._new_local_queues(inputs)
        self.undeclared_jobs = self._new_undeclared_jobs(inputs)
        self.exchange_loop = ExchangeLoop(
            self.in_flight,
            self.local_queues,
            self.finish_buffer,
            self.step_buffer,
            Dispatcher(
                self.in_flight,
                self.local_queues,
                inputs.handlers,
                self.undeclared_jobs,
                isolate_from=inputs.settings.isolate_after_crashes,
            ),
            store.jobs,
            self.registration,
            wake=self.wake,
            store_time=self.store_time,
            settings=inputs.settings,
            clock=clock,
            entropy=inputs.entropy,
            register_again=register_again or self.registration.register_again,
            on_control_change=on_control_change,
            overlap=overlap,
            max_claims=max_claims,
        )

    def _new_undeclared_jobs(self, inputs: WorkerInputs) -> UndeclaredJobs:
        return UndeclaredJobs(
            self.in_flight,
            self.finish_buffer,
            inputs.handlers,
            inputs.store.jobs,
            self.job_loop,
            lambda: self.registration.owner,
        )

    def _new_finish_buffer(self, settings: EngineSettings, *, overlap: bool) -> FinishBuffer:
        usual = _MAX_UNWRITTEN_OVERLAPPED if overlap else _MAX_UNWRITTEN
        return FinishBuffer(
            self.wake,
            max_unwritten=settings.max_unwritten or usual,
            max_age_s=settings.unwritten_s,
            mark_delay_s=settings.prefetch_s,
            overlap=overlap,
        )

    def _new_in_flight(self, inputs: WorkerInputs, run_log: RunLog) -> InFlightJobs:
        environment = RunEnvironment(
            lambda: self.registration.host_id,
            inputs.store.tag,
            inputs.clock,
            inputs.enqueuer,
            inputs.requests.request,
            limiter=lambda: self.rate_limit,
        )
        in_flight_jobs = LoggedInFlightJobs if run_log.logs_every_job else InFlightJobs
        return in_flight_jobs(
            environment,
            self.finish_buffer,
            self.step_buffer,
            store_time=self.store_time,
            lease_state=self.registration.lease_state,
            run_log=run_log,
            handlers=inputs.handlers,
            store=inputs.store,
            owner=lambda: self.registration.owner,
            settings=inputs.settings,
            clock=inputs.clock,
            entropy=inputs.entropy,
            job_loop=self.job_loop,
        )

    def _new_local_queues(self, inputs: WorkerInputs) -> LocalQueues:
        return LocalQueues(
            inputs.queues,
            self.in_flight,
            self.finish_buffer,
            inputs.handlers,
            lease_state=self.registration.lease_state,
            wake=self.wake,
            loop=self.job_loop.loop,
            clock=inputs.clock,
            backoff=inputs.settings.backoff,
        )

    def _lease_changed(self) -> None:
        if self.registration.lease_state.dead:
            self.exchange_loop.lose_claims()
        else:
            self.local_queues.start_ready()
        self.wake.notify()
