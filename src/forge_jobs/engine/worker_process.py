"""One worker process, put together: registered, leased, pumping, served by its services.

The order of things lives here: how a process starts, what it does when it is declared dead, and
how it goes.
"""

import asyncio
import contextlib
import logging

from forge_jobs.core.errors import ForgeError
from forge_jobs.kit.service import (
    FOLLOWER_S,
    PeriodicService,
    ServiceLoop,
    StopFlag,
    run_service,
)
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.store.processes import ProcessStats

from .liveness.io_tasks import IoTasks
from .liveness.listener import Listener
from .liveness.loop_watch import LoopWatch
from .liveness.shutdown import Shutdown
from .liveness.usage import Cores, read_usage
from .requests.declared_schedules import ensure_schedules
from .running.local_cancel import LocalCancels
from .running.rate_limit import RateLimiter, ensure_default_rate_limits
from .running.run import RunState
from .running.run_log import RunLog
from .services.cleanup import Cleanup
from .services.cron import Cron
from .services.leadership import LEAD_TTL_S, Leadership
from .services.limit_repair import LimitRepair, publish_limits
from .services.promote import Promote
from .services.reaper import Reaper, reap_stale_jobs
from .services.rebalance import Rebalance
from .services.roll_up import RollUp
from .services.slot_sync import SlotSync
from .services.unserved import Unserved
from .services.vitals import VitalsReport
from .worker_parts import WorkerInputs, WorkerParts

_LOG = logging.getLogger("forge_jobs.worker")


class WorkerProcess:
    """Made and used on the job loop, with an open store; ``request_cancel`` from any thread."""

    def __init__(self, inputs: WorkerInputs) -> None:
        store, settings, clock = inputs.store, inputs.settings, inputs.clock
        self._inputs = inputs
        self.parts = parts = WorkerParts(
            inputs,
            stats=self._stats,
            run_log=RunLog(store.tag),
            on_control_change=self._control_changed,
            register_again=self._register_again,
            overlap=store.capabilities.apart,
        )
        self._registration = parts.registration
        self._supervisor = SlotSync(
            parts.local_queues,
            store,
            settings=settings,
            host_id=lambda: self.host_id,
            on_change=self._slots_changed,
        )
        self._listener = Listener(
            store,
            self._registration.standing,
            parts.job_loop,
            clock=clock,
            on_hint=parts.exchange_loop.hint,
            on_mail=self._read_mail,
        )
        self._cancels = LocalCancels(parts.in_flight, store, parts.job_loop, clock)
        # A dead coordinator is missed no longer than its lease.
        ttl_s = min(LEAD_TTL_S, settings.lease_s)
        self._leadership = Leadership(
            store.processes, lambda: self._registration.owner, clock=clock, ttl_s=ttl_s
        )
        self._stop = StopFlag()
        self._cores = Cores(clock.mono)
        self._wakes = {Cron.name: WakeFlag(parts.job_loop.loop)}
        self._tasks: list[asyncio.Task[None]] = []
        self._afar = IoTasks(inputs.io, parts.job_loop)

    @property
    def host_id(self) -> str:
        """The name of the present life."""
        return self._registration.host_id

    @property
    def rate_limit(self) -> RateLimiter:
        """The permits of this process, as its handlers get them."""
        return self.parts.rate_limit

    @property
    def running(self) -> int:
        """How many handlers run at this moment."""
        return self.parts.in_flight.running

    async def start(self) -> None:
        """Take part. Raises what the store raises; nothing is left behind then."""
        inputs = self._inputs
        for name, slots in inputs.queues.items():
            await inputs.store.queues.ensure(name, slots=slots)
        await inputs.store.queues.publish(
            {kind: inputs.queue_of(kind) for kind in inputs.handlers.kinds()}
        )
        await publish_limits(inputs.store, inputs.handlers)
        await ensure_schedules(inputs.store, inputs.schedules)
        await ensure_default_rate_limits(inputs.store, inputs.handlers.rate_limits)
        await self._registration.join(replaces=inputs.replaces)
        # At once: the lease runs, and a slow store must not make a fresh process look dead.
        self._spawn_afar()
        try:
            if inputs.replaces is not None:
                # Before the first claim: jobs that saw their worker die are looked at with care.
                # Without a known death it is too early to judge (see Reaper).
                await reap_stale_jobs(inputs.store)
            await self._supervisor.share()
            await self._supervisor.look()
        except BaseException:
            self._afar.cancel()
            await self._registration.leave()
            raise
        self._tasks.append(asyncio.create_task(self.parts.exchange_loop.run(), name="forge-pump"))
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
        _LOG.info(
            "worker started",
            extra={"host_id": self.host_id, "queues": list(inputs.queues)},
        )

    async def stop(self, grace_s: float) -> None:
        """Go in order; by default within ``grace_s`` and two seconds, whatever the store does."""
        parts = self.parts
        leaving = Shutdown(
            parts.in_flight,
            parts.local_queues,
            parts.finish_buffer,
            self._registration,
            self._leadership,
            pass_on=self._supervisor.share,
            clock=self._inputs.clock,
            grace_s=grace_s,
            shutdown_s=self._inputs.settings.shutdown_s,
        )
        self._stop.set()
        if parts.in_flight.running and grace_s > 0:
            self._tasks.append(asyncio.create_task(self._retire(), name="forge-retire"))
        try:
            await leaving.wind_down()
        finally:
            self._supervisor.close()
            self._cancels.close()
            parts.in_flight.deadlines.close()
            self._afar.cancel()
            for task in self._tasks:
                task.cancel()
            await leaving.go([*self._tasks, asyncio.ensure_future(self._afar.ended())])
        _LOG.info("worker stopped", extra={"host_id": self.host_id})

    async def _retire(self) -> None:
        """While the last jobs run: want no slots any more, and give up those that came free."""
        inputs = self._inputs
        with contextlib.suppress(ForgeError):
            await inputs.store.processes.quiet(self.host_id, quiet=True)
        loop = ServiceLoop(inputs.clock, inputs.entropy, StopFlag(), self._leadership.is_leader)
        await run_service(self._supervisor, loop)

    def request_cancel(self, job_id: str) -> bool:
        """Cancel a job of this process; whether it is one. From any thread."""
        return self._cancels.request(job_id)

    # -- what the exchange loop calls ------------------------------------------------------------

    def _control_changed(self) -> None:
        # Operators did something: look at queues and at what they want of this process.
        self._supervisor.look_soon()
        self._wakes[Cron.name].notify()

    async def _register_again(self) -> None:
        _LOG.warning("declared dead; registering anew", extra={"host_id": self.host_id})
        self._supervisor.forget()
        await self._registration.join_anew()
        self._supervisor.look_soon()

    # -- what others report ---------------------------------------------------------------------

    def _slots_changed(self) -> None:
        # The others take what we gave up only when they know of it.
        self._registration.lease.hurry()
        self.parts.local_queues.pour()
        self.parts.wake.notify()

    def _read_mail(self) -> None:
        mailbox = self._registration.standing.mailbox
        while mailbox:
            control = mailbox.popleft()
            for key in control.cancels:
                self.parts.in_flight.cancel(key)
        self._supervisor.look_soon()

    def _stats(self) -> ProcessStats:
        parts, seen = self.parts, read_usage()
        return ProcessStats(
            running=parts.in_flight.running,
            slots={
                name: max(queue.target, queue.busy)
                for name, queue in parts.local_queues.by_name.items()
            },
            memory_bytes=seen.memory_bytes,
            cores=round(self._cores.of(seen.cpu_s), 3),
            disk_share=seen.disk_share,
        )

    def _running_kinds(self) -> list[str]:
        # Only asked for while the job loop stands still, so nothing changes underneath.
        runs = list(self.parts.in_flight.held.values())
        return [run.job.kind for run in runs if run.state is RunState.RUNNING]

    # -- parts ----------------------------------------------------------------------------------

    def _services(self) -> list[PeriodicService]:
        inputs, store = self._inputs, self._inputs.store
        return [
            self._supervisor,
            Reaper(
                store,
                lease_s=inputs.settings.lease_s,
                clock=inputs.clock,
                store_now=self.parts.store_time.now,
                unbroken_since=lambda: self._registration.lease.unbroken_since,
            ),
            Promote(store, store_now=self.parts.store_time.now),
            LimitRepair(store),
            Cleanup(store, settings=inputs.settings),
            RollUp(store),
            *self._reports(),
            Rebalance(store, max_slots=inputs.settings.max_slots),
            Unserved(store, clock=inputs.clock),
            Cron(
                store,
                queue_of=inputs.queue_known,
                router=inputs.router,
                entropy=inputs.entropy,
                prepared=inputs.enqueuer.prepared,
            ),
        ]

    def _reports(self) -> list[PeriodicService]:
        if not self._inputs.settings.metrics:
            return []
        parts, registration = self.parts, self._registration
        return [
            VitalsReport(
                self._inputs.store.metrics,
                who=lambda: (
                    registration.host_id,
                    self._inputs.card.label(registration.host_id),
                ),
                running=lambda: parts.in_flight.running,
                trips=parts.exchange_loop.trips,
                usage=read_usage,
                clock=self._inputs.clock,
                store_now=parts.store_time.now,
            )
        ]

    def _spawn_afar(self) -> None:
        inputs, listener, registration = self._inputs, self._listener, self._registration
        watch = LoopWatch(self.parts.job_loop, inputs.clock, self._running_kinds)
        queues = list(inputs.queues)
        control_s = inputs.settings.control_s
        spawn = self._afar.spawn
        spawn(self._registration.lease.keep)
        spawn(lambda: listener.listen(queues))
        spawn(
            lambda: listener.follow(
                control_s, lambda: registration.owner, lambda: bool(self.parts.in_flight.held)
            )
        )
        spawn(watch.watch)
