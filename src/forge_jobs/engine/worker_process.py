"""One worker process: its parts, its services, and the order of start and stop."""

import asyncio
import contextlib
import importlib
import logging

from forge_jobs.core.errors import ForgeError
from forge_jobs.kit.log import IN_MESSAGE
from forge_jobs.kit.service import (
    FOLLOWER_S,
    PeriodicService,
    ServiceLoop,
    StopFlag,
    run_service,
)
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.store.processes import ProcessStats
from forge_jobs.store.published_kinds import publish_declarations

from .liveness.io_tasks import IoTasks
from .liveness.listener import Listener
from .liveness.loop_watch import LoopWatch
from .liveness.shutdown import Shutdown
from .liveness.usage import Cores, read_usage
from .requests.declared_alerts import ensure_alerts
from .requests.declared_schedules import ensure_schedules
from .running.local_cancel import LocalCancels
from .running.rate_limit import RateLimiter, ensure_default_rate_limits
from .running.run import RunState
from .running.run_log import RunLog
from .services.alerts import Alerts
from .services.cleanup import Cleanup
from .services.cron import CronService
from .services.event_delivery import EventDelivery
from .services.leadership import LEAD_TTL_S, Leadership
from .services.limit_repair import LimitRepair, publish_limits
from .services.minute_report import MinuteReport
from .services.promote import Promote
from .services.reaper import Reaper, reap_stale_jobs
from .services.rebalance import Rebalance
from .services.roll_up import RollUp
from .services.routing import Routing
from .services.slot_sync import SlotSync
from .services.unserved import Unserved
from .services.vitals import VitalsReport
from .services.worker_record import WorkerRecord
from .worker_parts import WorkerInputs, WorkerParts

_LOG = logging.getLogger("forge_jobs.worker")
# Registers fork hooks. Before any handler can fork: of hooks that are registered during a fork of
# another thread only the second half runs, which releases a lock that nobody took.
importlib.import_module("concurrent.futures.thread")
_STARTED = frozenset({"host_id", "queues"})


class WorkerProcess:
    """Made and used on the job loop, with an open store; any thread may call ``request_cancel``."""

    def __init__(self, inputs: WorkerInputs) -> None:
        store, settings, clock = inputs.store, inputs.settings, inputs.clock
        self._inputs = inputs
        job_level = logging.INFO if settings.log_jobs else logging.DEBUG
        self._run_log = RunLog(store.tag, job_level=job_level)
        self._shutdown: Shutdown | None = None
        self.parts = parts = WorkerParts(
            inputs,
            stats=self._stats,
            run_log=self._run_log,
            on_control_change=self._control_changed,
            register_again=self._register_again,
            overlap=store.capabilities.server_side,
        )
        self._registration = parts.registration
        self._slot_sync = SlotSync(
            parts.local_queues,
            store,
            settings=settings,
            host_id=lambda: self.host_id,
            on_change=self._slots_changed,
        )
        self._listener = Listener(
            store,
            self._registration.lease_state,
            parts.job_loop,
            clock=clock,
            on_notify=parts.exchange_loop.notify,
            on_control=self._read_controls,
        )
        self._cancels = LocalCancels(parts.in_flight, store, parts.job_loop, clock)
        # Another process takes over from a dead coordinator after at most one lease.
        ttl_s = min(LEAD_TTL_S, settings.lease_s)
        self._leadership = Leadership(
            store.processes, lambda: self._registration.owner, clock=clock, ttl_s=ttl_s
        )
        self._stop = StopFlag()
        self._cores = Cores(clock.mono)
        self._wakes = {CronService.name: WakeFlag(parts.job_loop.loop)}
        self._tasks: list[asyncio.Task[None]] = []
        self._io_tasks = IoTasks(inputs.io, parts.job_loop)

    @property
    def host_id(self) -> str:
        """The name of this process in the store; another one after it was declared dead."""
        return self._registration.host_id

    @property
    def lease_error(self) -> Exception | None:
        """Why the last heartbeat failed; None if it did not."""
        return self._registration.lease.error

    @property
    def rate_limit(self) -> RateLimiter:
        """The permits of this process, as its handlers get them."""
        return self.parts.rate_limit

    @property
    def running(self) -> int:
        """How many handlers run at this moment."""
        return self.parts.in_flight.running

    async def start(self) -> None:
        """Register and start working. Raises what the store raises; nothing is left behind then."""
        inputs = self._inputs
        for name, slots in inputs.queues.items():
            await inputs.store.queues.ensure(name, slots=slots)
        await inputs.store.queues.publish(
            {kind: inputs.requests.route(kind) for kind in inputs.handlers.kinds()}
        )
        await publish_limits(inputs.store, inputs.handlers)
        await publish_declarations(inputs.store, inputs.handlers.declarations())
        await ensure_schedules(inputs.store, inputs.schedules)
        await ensure_alerts(inputs.store, inputs.handlers.alerts.values())
        await ensure_default_rate_limits(inputs.store, inputs.handlers.rate_limits)
        await self._registration.register(replaces=inputs.replaces)
        # At once: the lease runs, and a slow store must not make a new process look dead.
        self._start_io_tasks()
        try:
            if inputs.replaces is not None:
                # Before the first claim, so that jobs of the dead process have their crash counted.
                # Without a known death it is too early to reap (see Reaper).
                await reap_stale_jobs(inputs.store)
            await self._slot_sync.share()
            await self._slot_sync.sync()
        except BaseException:
            self._io_tasks.cancel()
            await self._registration.deregister()
            raise
        self._tasks.append(
            asyncio.create_task(self.parts.exchange_loop.run(), name="forge-exchange-loop")
        )
        loop = ServiceLoop(
            inputs.clock,
            inputs.entropy,
            self._stop,
            self._leadership.is_leader,
            follower_s=min(FOLLOWER_S, inputs.settings.lease_s),
        )
        for service in self._services():
            work = run_service(service, loop, wake=self._wakes.get(service.name))
            self._tasks.append(asyncio.create_task(work, name=f"forge-{service.name}"))
        kinds = len(inputs.handlers.kinds())
        _LOG.info(
            "worker started: %s serves %s with %d %s",
            *(self.host_id, ", ".join(inputs.queues), kinds, "task" if kinds == 1 else "tasks"),
            extra={"host_id": self.host_id, "queues": list(inputs.queues), IN_MESSAGE: _STARTED},
        )

    async def stop(self, grace_s: float) -> None:
        """Shut down; by default within ``grace_s`` and two seconds, whatever the store does."""
        parts = self.parts
        self._shutdown = shutdown = Shutdown(
            parts.in_flight,
            parts.local_queues,
            self._registration,
            self._leadership,
            share_slots=self._slot_sync.share,
            clock=self._inputs.clock,
            grace_s=grace_s,
            shutdown_s=self._inputs.settings.shutdown_s,
        )
        self._stop.set()
        if parts.in_flight.running and grace_s > 0:
            self._tasks.append(
                asyncio.create_task(self._give_up_slots(), name="forge-give-up-slots")
            )
        try:
            await shutdown.wind_down()
        finally:
            self._slot_sync.close()
            self._cancels.close()
            parts.undeclared_jobs.close()
            self._tasks += parts.in_flight.close()
            self._io_tasks.cancel()
            for task in self._tasks:
                task.cancel()
            await shutdown.leave([*self._tasks, asyncio.ensure_future(self._io_tasks.wait())])
        _LOG.info("worker stopped: %s", self.host_id, extra=self._host_fields())

    def _host_fields(self) -> dict[str, object]:
        return {"host_id": self.host_id, IN_MESSAGE: _STARTED}

    def end_grace(self) -> None:
        """During ``stop``: give running jobs no more time."""
        if self._shutdown is not None:
            self._shutdown.end_grace()

    async def _give_up_slots(self) -> None:
        """While the last jobs run: take no new slots, and give up those that become free."""
        inputs = self._inputs
        with contextlib.suppress(ForgeError):
            await inputs.store.processes.quiet(self.host_id, quiet=True)
        loop = ServiceLoop(inputs.clock, inputs.entropy, StopFlag(), self._leadership.is_leader)
        await run_service(self._slot_sync, loop)

    def request_cancel(self, job_id: str) -> bool:
        """Cancel a job if this process holds it; whether it does. Any thread may call it."""
        return self._cancels.request(job_id)

    # -- callbacks ------------------------------------------------------------------------------

    def _control_changed(self) -> None:
        # Operators changed something: read the settings of queues and of this process again.
        self._slot_sync.sync_soon()
        self._wakes[CronService.name].notify()

    async def _register_again(self) -> None:
        _LOG.warning(
            "%s was declared dead; registering again", self.host_id, extra=self._host_fields()
        )
        self._slot_sync.drop_slots()
        await self._registration.register_again()
        self._slot_sync.sync_soon()

    def _slots_changed(self) -> None:
        # Other processes take what was given up only when a heartbeat has reported it.
        self._registration.lease.beat_now()
        self.parts.local_queues.start_ready()
        self.parts.wake.notify()

    def _read_controls(self) -> None:
        control_inbox = self._registration.lease_state.control_inbox
        while control_inbox:
            control = control_inbox.popleft()
            for key in control.cancels:
                self.parts.in_flight.cancel(key)
        self._slot_sync.sync_soon()

    def _stats(self) -> ProcessStats:
        parts, usage = self.parts, read_usage()
        return ProcessStats(
            running=parts.in_flight.running,
            slots={
                name: max(queue.slots, queue.busy)
                for name, queue in parts.local_queues.by_name.items()
            },
            memory_bytes=usage.memory_bytes,
            cores=round(self._cores.of(usage.cpu_s), 3),
            disk_share=usage.disk_share,
        )

    def _running_kinds(self) -> list[str]:
        # Only called while the job loop is blocked, so that nothing changes meanwhile.
        runs = list(self.parts.in_flight.held.values())
        return [run.job.kind for run in runs if run.state is RunState.RUNNING]

    # -- parts ----------------------------------------------------------------------------------

    def _services(self) -> list[PeriodicService]:
        inputs, store = self._inputs, self._inputs.store
        return [
            self._slot_sync,
            Reaper(
                store,
                lease_s=inputs.settings.lease_s,
                clock=inputs.clock,
                store_now=self.parts.store_time.now,
                unbroken_since=lambda: self._registration.lease.unbroken_since,
            ),
            Promote(store, store_now=self.parts.store_time.now),
            Routing(store),
            LimitRepair(store),
            EventDelivery(store),
            Alerts(store, interval_s=inputs.settings.alert_s),
            Cleanup(store, settings=inputs.settings),
            RollUp(store),
            *self._report_services(),
            MinuteReport(
                self.parts.in_flight, self._run_log, list(inputs.queues), mono=inputs.clock.mono
            ),
            Rebalance(store, max_slots=inputs.settings.max_slots),
            Unserved(store, clock=inputs.clock),
            CronService(
                store,
                requests=inputs.requests,
                entropy=inputs.entropy,
                prepare=inputs.enqueuer.prepare,
            ),
        ]

    def _report_services(self) -> list[PeriodicService]:
        if not self._inputs.settings.metrics:
            return []
        parts, registration, info = self.parts, self._registration, self._inputs.info
        return [
            WorkerRecord(
                self._inputs.store.settings,
                owner=lambda: registration.owner,
                label=lambda: info.label(registration.host_id),
                version=info.version,
                clock=self._inputs.clock,
            ),
            VitalsReport(
                self._inputs.store.metrics,
                identity=lambda: (
                    registration.host_id,
                    info.label(registration.host_id),
                ),
                running=lambda: parts.in_flight.running,
                store_latency=parts.exchange_loop.store_latency,
                usage=read_usage,
                clock=self._inputs.clock,
                store_now=parts.store_time.now,
            ),
        ]

    def _start_io_tasks(self) -> None:
        inputs, listener, registration = self._inputs, self._listener, self._registration
        run = LoopWatch(self.parts.job_loop, inputs.clock, self._running_kinds)
        queues = list(inputs.queues)
        control_s = inputs.settings.control_s
        spawn = self._io_tasks.spawn
        spawn(self._registration.lease.run)
        spawn(lambda: listener.listen(queues))
        spawn(
            lambda: listener.follow(
                control_s, lambda: registration.owner, lambda: bool(self.parts.in_flight.held)
            )
        )
        spawn(run.run)
