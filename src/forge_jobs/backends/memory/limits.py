"""The limit contract on memory: gates, and how full limit buckets are."""

from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import LANE, UNBOUNDED
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.limits import Admitted, LimitBucket

from . import transitions
from .limit_buckets import max_per_key
from .limited_claim import running_under
from .tables import Tables


class MemoryLimits:
    """``LimitStore`` on memory; see ``forge_jobs.store.limits`` for what each method promises."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def gates(self) -> dict[str, Gate]:
        with self._tables.read():
            gates = sorted(self._tables.gates.items())
            return {name: gate for name, gate in gates if gate != OPEN}

    async def open_gate(self, name: str) -> None:
        with self._tables.write():
            self._tables.gates.pop(name, None)
            self._tables.raise_control_version()

    async def bucket(self, name: str) -> LimitBucket:
        with self._tables.read():
            limit_buckets, limits = self._tables.index.limit_buckets, self._tables.limits
            if name.startswith(LANE):
                first = limit_buckets.lane_head(name)
                taken = 0 if limit_buckets.lane_holder(name) is None else 1
                return LimitBucket(
                    name=name, taken=taken, capacity=1, first=None if first is None else first.id
                )
            if "/" in name:
                capacity = max_per_key(name, limits)
                return LimitBucket(
                    name=name,
                    taken=limit_buckets.taken(name),
                    capacity=None if capacity == UNBOUNDED else capacity,
                )
            limit = limits.get(name)
            capacity = None if limit is None else limit.cap
            return LimitBucket(
                name=name, taken=running_under(self._tables, name), capacity=capacity
            )

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        with self._tables.write() as now:
            names = [
                name for name in self._tables.index.limit_buckets.names() if name > (after or "")
            ]
            chosen = names[: max(limit, 1)]
            admitted = sum(transitions.admit(self._tables, bucket, now) for bucket in chosen)
            return Admitted(admitted, chosen[-1] if len(names) > len(chosen) else None)


def reapply(tables: Tables, name: str, now: Instant) -> None:
    """Apply a changed limit to the jobs of its keys that have not started."""
    # Pending jobs of its keys are held, then admitted under the new number.
    active = tables.index.limit_buckets.active(name)
    for row in [row for row in active if row.status is JobStatus.PENDING]:
        bucket = row.job.limit_key
        transitions.transition(tables, row, Event.HOLD, JobStatus.HELD, now, bucket=bucket)
    for bucket in tables.index.limit_buckets.names():
        transitions.admit(tables, bucket, now)
