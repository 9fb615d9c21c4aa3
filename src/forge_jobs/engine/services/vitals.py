"""Reports what this process uses of its machine, and the latency of the store."""

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
    """Runs in every process: each reports its own numbers."""

    name = "vitals"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        metrics: MetricsStore,
        *,
        identity: Callable[[], tuple[str, str]],
        running: Callable[[], int],
        store_latency: StoreLatency,
        usage: Callable[[], Usage],
        clock: Clock,
        store_now: Callable[[], Instant],
    ) -> None:
        self._metrics = metrics
        self._identity = identity
        self._running = running
        self._store_latency = store_latency
        self._usage = usage
        self._mono = clock.mono
        self._store_now = store_now
        self._before: tuple[float, Usage] | None = None

    async def tick(self) -> Next:
        """Add what happened since the last report to the current minute."""
        at, usage = self._mono(), self._usage()
        before, self._before = self._before, (at, usage)
        if before is None:
            return Next.after(_EVERY_S)
        last_at, last = before
        now = self._store_now()
        host_id, label = self._identity()
        exchange, errors = self._store_latency.take()
        await self._metrics.record_vitals(
            Vitals(
                at=now - now % MINUTE,
                host_id=host_id,
                label=label,
                cpu_s=max(0.0, usage.cpu_s - last.cpu_s),
                span_s=at - last_at,
                memory_bytes=usage.memory_bytes,
                disk_read_bytes=usage.disk_read_bytes - last.disk_read_bytes,
                disk_write_bytes=usage.disk_write_bytes - last.disk_write_bytes,
                disk_share=usage.disk_share,
                running=self._running(),
                exchange=exchange,
                errors=errors,
            )
        )
        return Next.after(_EVERY_S)
