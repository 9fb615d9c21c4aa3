"""A simulated process that runs only the cron service."""

from collections.abc import Sequence
from typing import ClassVar

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.schedule import CronSpec
from forge_jobs.engine.requests.declared_schedules import ensure_schedules
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.requests.opened_store import OpenedStore
from forge_jobs.engine.requests.published_kinds_cache import PublishedKindsCache
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.engine.services.cron import CronService
from forge_jobs.engine.services.leadership import Leadership
from forge_jobs.kit.service import ServiceLoop, StopFlag, run_service
from forge_jobs.store.processes import NewProcess
from rigs.simulation.faults import FaultyStore
from rigs.simulation.node import Node

# Longer than any simulation: process leases are not tested here, leadership is.
_LEASE_S = 10 * 365 * 86_400.0
_RETRY_S = 30.0


class CronNode(Node):
    """Registers once, declares its schedules, and runs the service until it ends.

    The leadership lease and all intervals are longer than in production, by the same factor, so
    that a month takes few steps.
    """

    LEAD_S: ClassVar[float] = 300.0
    key: int = -1
    schedules: Sequence[CronSpec] = ()

    async def shutdown(self, timeout_s: float) -> None:
        """End gracefully: release the leadership first."""
        if self.gone:
            return
        stop: StopFlag | None = getattr(self, "_stop", None)
        if stop is None or self.frozen:
            return self.crash()
        self._sim.fault(self.who, "shutdown", f"{timeout_s:.1f} s")
        stop.set()
        await self._sim.loop.create_task(self._go(), context=self._engine.context())

    async def _start(self, replaces: str | None) -> None:
        store = FaultyStore(self._sim.store, self.connection, self._io, self._sim.recorder)
        process = NewProcess(
            host_id=self.who, label=self.who, queues=(), pid=1, hostname="h", lease_s=_LEASE_S
        )
        while True:
            try:
                await ensure_schedules(store, self.schedules)
                self.key = await store.processes.register(process)
                break
            except ForgeError as error:
                self._sim.fault(self.who, "start", f"not yet: {error}")
                await self.clock.sleep(_RETRY_S)
        self._leadership = Leadership(
            store.processes, lambda: self.key, clock=self.clock, ttl_s=self.LEAD_S
        )
        self._stop = StopFlag()
        loop = ServiceLoop(
            self.clock,
            self._entropy,
            self._stop,
            self._leadership.is_leader,
            follower_s=self.LEAD_S / 2,
        )
        cron = CronService(
            store,
            requests=JobRequests(
                HandlerRegistry(), PublishedKindsCache(OpenedStore(store), self.clock)
            ),
            entropy=self._entropy,
            interval_s=self.LEAD_S,
        )
        await run_service(cron, loop)

    async def _go(self) -> None:
        try:
            await self._leadership.release()
        except ForgeError as error:
            self._sim.fault(self.who, "exit", f"kept the lead: {error}")
        self.gone = self.left = True
        self.connection.disconnect()
