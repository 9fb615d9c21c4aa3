"""One worker process, put together: registered, leased, pumping, served by its services.

The order of things lives here: how a process starts, what it does when it is declared dead, and
how it goes.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import ForgeError
from forge_jobs.core.schedule import CronSpec
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.io_thread import IoPort
from forge_jobs.kit.service import (
    FOLLOWER_S,
    PeriodicService,
    ServiceLoop,
    StopFlag,
    run_service,
)
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.processes import ProcessStats
from forge_jobs.store.store import Store

from .claiming.dispatcher import Dispatcher
from .claiming.exchange_loop import ExchangeLoop
from .claiming.local_queue import LocalQueue
from .liveness.io_tasks import IoTasks
from .liveness.listener import Listener
from .liveness.loop_watch import LoopWatch
from .liveness.registration import ProcessInfo, Registration
from .liveness.shutdown import Shutdown
from .liveness.usage import Cores, read_usage
from .requests.declared_schedules import ensure_schedules
from .requests.job_requests import JobRequests
from .running.context import RunEnvironment
from .running.in_flight import InFlightJobs, InFlightParts
from .running.job_loop import JobLoop
from .running.local_cancel import LocalCancels
from .running.rate_limit import RateLimiter, ensure_default_rate_limits, store_of
from .running.registry import HandlerRegistry
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

_LOG = logging.getLogger("forge_jobs.worker")


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """What a process is made of. ``queues`` are names with the slots they get if they are new."""

    store: Store
    handlers: HandlerRegistry
    queues: Mapping[str, int]
    settings: EngineSettings
    clock: Clock
    entropy: Entropy
    io: IoPort
    enqueuer: Enqueuer
    requests: JobRequests
    card: ProcessInfo
    replaces: str | None = None
    schedules: Sequence[CronSpec] = ()


class WorkerProcess:
    """Made and used on the job loop, with an open store; ``request_cancel`` from any thread."""

    def __init__(self, plan: ProcessParts) -> None:
        store, settings, clock = plan.store, plan.settings, plan.clock
        self._plan = plan
        self._job_loop = JobLoop(asyncio.get_running_loop())
        self._member = Registration(
            store.processes,
            plan.card,
            settings=settings,
            clock=clock,
            entropy=plan.entropy,
            stats=self._stats,
            news=lambda: self._job_loop.post(self._standing_changed),
        )
        standing = self._member.standing
        self.rate_limit = RateLimiter(
            store_of(store), plan.io, declared=plan.handlers.rate_limits, clock=clock
        )
        self.floor = self._new_floor()
        self._exchange_loop = ExchangeLoop(
            self.floor,
            Dispatcher(self.floor, plan.handlers, isolate_from=settings.isolate_after_crashes),
            store.jobs,
            self,
            settings=settings,
            clock=clock,
            entropy=plan.entropy,
        )
        self._supervisor = SlotSync(
            self.floor,
            store,
            settings=settings,
            host_id=lambda: self.host_id,
            on_change=self._slots_changed,
        )
        self._listener = Listener(
            store,
            standing,
            self._job_loop,
            clock=clock,
            on_hint=self._exchange_loop.hint,
            on_mail=self._read_mail,
        )
        self._cancels = LocalCancels(self.floor, store, self._job_loop, clock)
        # A dead coordinator is missed no longer than its lease.
        ttl_s = min(LEAD_TTL_S, settings.lease_s)
        self._leadership = Leadership(store.processes, lambda: self.owner, clock=clock, ttl_s=ttl_s)
        self._stop = StopFlag()
        self._cores = Cores(clock.mono)
        self._wakes = {Cron.name: WakeFlag(self._job_loop.loop)}
        self._tasks: list[asyncio.Task[None]] = []
        self._afar = IoTasks(plan.io, self._job_loop)

    @property
    def host_id(self) -> str:
        """The name of the present life."""
        return self._member.host_id

    @property
    def owner(self) -> int:
        """The owner key of the present life."""
        return self._member.owner

    async def start(self) -> None:
        """Take part. Raises what the store raises; nothing is left behind then."""
        plan = self._plan
        for name, slots in plan.queues.items():
            await plan.store.queues.ensure(name, slots=slots)
        await plan.store.queues.publish(
            {kind: plan.requests.route(kind) for kind in plan.handlers.kinds()}
        )
        await publish_limits(plan.store, plan.handlers)
        await ensure_schedules(plan.store, plan.schedules)
        await ensure_default_rate_limits(plan.store, plan.handlers.rate_limits)
        await self._member.join(replaces=plan.replaces)
        # At once: the lease runs, and a slow store must not make a fresh process look dead.
        self._spawn_afar()
        try:
            if plan.replaces is not None:
                # Before the first claim: jobs that saw their worker die are looked at with care.
                # Without a known death it is too early to judge (see Reaper).
                await reap_stale_jobs(plan.store)
            await self._supervisor.share()
            await self._supervisor.look()
        except BaseException:
            self._afar.cancel()
            await self._member.leave()
            raise
        self._tasks.append(asyncio.create_task(self._exchange_loop.run(), name="forge-pump"))
        loop = ServiceLoop(
            plan.clock,
            plan.entropy,
            self._stop,
            self._leadership.is_leader,
            follower_s=min(FOLLOWER_S, plan.settings.lease_s),
        )
        for service in self._services():
            work = run_service(service, loop, wake=self._wakes.get(service.name))
            self._tasks.append(asyncio.create_task(work, name=f"forge-{service.name}"))
        _LOG.info(
            "worker started",
            extra={"host_id": self.host_id, "queues": list(plan.queues)},
        )

    async def stop(self, grace_s: float) -> None:
        """Go in order; by default within ``grace_s`` and two seconds, whatever the store does."""
        leaving = Shutdown(
            self.floor,
            self._exchange_loop,
            self._member,
            self._leadership,
            pass_on=self._supervisor.share,
            clock=self._plan.clock,
            grace_s=grace_s,
            shutdown_s=self._plan.settings.shutdown_s,
        )
        self._stop.set()
        if self.floor.running and grace_s > 0:
            self._tasks.append(asyncio.create_task(self._retire(), name="forge-retire"))
        try:
            await leaving.wind_down()
        finally:
            self._supervisor.close()
            self._cancels.close()
            self.floor.watch.close()
            self._afar.cancel()
            for task in self._tasks:
                task.cancel()
            await leaving.go([*self._tasks, asyncio.ensure_future(self._afar.ended())])
        _LOG.info("worker stopped", extra={"host_id": self.host_id})

    async def _retire(self) -> None:
        """While the last jobs run: want no slots any more, and give up those that came free."""
        plan = self._plan
        with contextlib.suppress(ForgeError):
            await plan.store.processes.quiet(self.host_id, quiet=True)
        loop = ServiceLoop(plan.clock, plan.entropy, StopFlag(), self._leadership.is_leader)
        await run_service(self._supervisor, loop)

    def request_cancel(self, job_id: str) -> bool:
        """Cancel a job of this process; whether it is one. From any thread."""
        return self._cancels.request(job_id)

    # -- what the pump asks for -----------------------------------------------------------------

    def control_changed(self) -> None:
        """Operators did something: look at queues and at what they want of this process."""
        self._supervisor.look_soon()
        self._wakes[Cron.name].notify()

    def doubt_lease(self) -> None:
        """The store does not hold this process for alive."""
        self._member.lease.doubt()

    async def begin_anew(self) -> None:
        """Declared dead: start another life."""
        _LOG.warning("declared dead; registering anew", extra={"host_id": self.host_id})
        self._supervisor.forget()
        await self._member.join_anew()
        self.floor.around = dataclasses.replace(self.floor.around, host_id=self.host_id)
        self._supervisor.look_soon()

    # -- what others report ---------------------------------------------------------------------

    def _standing_changed(self) -> None:
        if self._member.standing.dead:
            self.floor.lose_everything()
        else:
            self.floor.pour()
        self.floor.bell.notify()

    def _slots_changed(self) -> None:
        # The others take what we gave up only when they know of it.
        self._member.lease.hurry()
        self.floor.pour()
        self.floor.bell.notify()

    def _read_mail(self) -> None:
        mailbox = self._member.standing.mailbox
        while mailbox:
            control = mailbox.popleft()
            for key in control.cancels:
                self.floor.cancel(key)
        self._supervisor.look_soon()

    def _stats(self) -> ProcessStats:
        floor, seen = self.floor, read_usage()
        return ProcessStats(
            running=floor.running,
            slots={name: max(lane.target, lane.busy) for name, lane in floor.lanes.items()},
            memory_bytes=seen.memory_bytes,
            cores=round(self._cores.of(seen.cpu_s), 3),
            disk_share=seen.disk_share,
        )

    def _running_kinds(self) -> list[str]:
        # Only asked for while the job loop stands still, so nothing changes underneath.
        runs = list(self.floor.held.values())
        return [run.job.kind for run in runs if run.state is RunState.RUNNING]

    # -- parts ----------------------------------------------------------------------------------

    def _surroundings(self) -> RunEnvironment:
        plan = self._plan
        return RunEnvironment(
            self._member.host_id,
            plan.store.tag,
            plan.clock,
            plan.enqueuer,
            plan.requests.request,
            limiter=lambda: self.rate_limit,
        )

    def _new_floor(self) -> InFlightJobs:
        plan, clock, settings = self._plan, self._plan.clock, self._plan.settings
        floor = InFlightJobs(
            InFlightParts(
                settings,
                clock,
                plan.entropy,
                self._member.standing,
                RunLog(plan.store.tag),
                overlap=plan.store.capabilities.server_side,
            ),
            self._surroundings(),
            self._job_loop,
        )
        for name in plan.queues:
            floor.lanes[name] = LocalQueue(name, floor, now=clock.mono(), backoff=settings.backoff)
        return floor

    def _services(self) -> list[PeriodicService]:
        plan, store = self._plan, self._plan.store
        return [
            self._supervisor,
            Reaper(
                store,
                lease_s=plan.settings.lease_s,
                clock=plan.clock,
                store_now=self.floor.store_now,
                unbroken_since=lambda: self._member.lease.unbroken_since,
            ),
            Promote(store, store_now=self.floor.store_now),
            LimitRepair(store),
            Cleanup(store, settings=plan.settings),
            RollUp(store),
            *self._reports(),
            Rebalance(store, max_slots=plan.settings.max_slots),
            Unserved(store, clock=plan.clock),
            Cron(
                store,
                requests=plan.requests,
                entropy=plan.entropy,
                prepare=plan.enqueuer.prepare,
            ),
        ]

    def _reports(self) -> list[PeriodicService]:
        if not self._plan.settings.metrics:
            return []
        member, floor = self._member, self.floor
        return [
            VitalsReport(
                self._plan.store.metrics,
                who=lambda: (member.host_id, self._plan.card.label(member.host_id)),
                running=lambda: floor.running,
                trips=self._exchange_loop.trips,
                usage=read_usage,
                clock=self._plan.clock,
                store_now=floor.store_now,
            )
        ]

    def _spawn_afar(self) -> None:
        plan, listener = self._plan, self._listener
        watch = LoopWatch(self._job_loop, plan.clock, self._running_kinds)
        queues = list(plan.queues)
        control_s = plan.settings.control_s
        spawn = self._afar.spawn
        spawn(self._member.lease.keep)
        spawn(lambda: listener.listen(queues))
        spawn(lambda: listener.follow(control_s, lambda: self.owner, lambda: bool(self.floor.held)))
        spawn(watch.watch)
