"""Reports how this process fares: what it uses of its machine, and how the store answers."""

from collections.abc import Callable

from forge_jobs.core.instant import MINUTE, Instant
from forge_jobs.core.vitals import Vitals
from forge_jobs.engine.claiming.store_latency import StoreLatency
from forge_jobs.engine.liveness.usage import Usage
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.metrics import MetricsStore

_EVERY_S = 20.0


class VitalsReport:
    """Every node for itself: what one of them does not tell, nobody knows."""

    name = "vitals"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        metrics: MetricsStore,
        *,
        who: Callable[[], tuple[str, str]],
        running: Callable[[], int],
        trips: StoreLatency,
        usage: Callable[[], Usage],
        clock: Clock,
        store_now: Callable[[], Instant],
    ) -> None:
        self._ledger = metrics
        self._who = who
        self._running = running
        self._trips = trips
        self._usage = usage
        self._mono = clock.mono
        self._store_now = store_now
        self._before: tuple[float, Usage] | None = None

    async def tick(self) -> Next:
        """Add what happened since the last report to the present minute."""
        at, seen = self._mono(), self._usage()
        before, self._before = self._before, (at, seen)
        if before is None:
            return Next.after(_EVERY_S)
        told_at, told = before
        now = self._store_now()
        host_id, label = self._who()
        exchange, errors = self._trips.take()
        await self._ledger.record_vitals(
            Vitals(
                at=now - now % MINUTE,
                host_id=host_id,
                label=label,
                cpu_s=max(0.0, seen.cpu_s - told.cpu_s),
                span_s=at - told_at,
                memory_bytes=seen.memory_bytes,
                disk_read_bytes=seen.disk_read_bytes - told.disk_read_bytes,
                disk_write_bytes=seen.disk_write_bytes - told.disk_write_bytes,
                disk_share=seen.disk_share,
                running=self._running(),
                exchange=exchange,
                errors=errors,
            )
        )
        return Next.after(_EVERY_S)
