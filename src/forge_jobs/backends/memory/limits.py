"""The limit contract on memory: limits, scope gates, and how full limit buckets are."""

from collections.abc import Sequence

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import (
    LANE,
    SCOPE,
    UNBOUNDED,
    Declared,
    Limit,
    refilled,
    scope_gate,
    with_declared,
    with_operator_change,
)
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.limits import Admitted, LimitBucket, LimitChange

from . import transitions
from .limit_buckets import max_per_key
from .limited_claim import running_under
from .tables import Tables


class MemoryLimits:
    """``LimitStore`` on memory; see ``forge_jobs.store.limits`` for what each method promises."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def publish(self, declared: Sequence[Declared]) -> None:
        with self._tables.write() as now:
            for declaration in declared:
                known = self._tables.limits.get(declaration.name)
                limit = with_declared(known, declaration, now)
                if limit is not known:
                    self._put(limit, now)

    async def all(self) -> list[Limit]:
        with self._tables.read() as now:
            return [refilled(limit, now) for _, limit in sorted(self._tables.limits.items())]

    async def change(self, name: str, change: LimitChange) -> Limit:
        with self._tables.write() as now:
            known = self._tables.limits.get(name)
            limit = with_operator_change(known, name, structs.asdict(change), now)
            self._put(limit, now)
            return limit

    async def reset(self, name: str) -> None:
        with self._tables.write() as now:
            limit = self._tables.limits.get(name)
            if limit is None:
                raise NotFound(f"there is no limit {name!r}")
            self._put(structs.replace(limit, by_operator=False, updated_at=now), now)

    async def gates(self) -> dict[str, Gate]:
        with self._tables.read():
            return {
                name.removeprefix(SCOPE): gate
                for name, gate in sorted(self._tables.gates.items())
                if name.startswith(SCOPE) and gate != OPEN
            }

    async def open_scope(self, scope: str) -> None:
        with self._tables.write():
            name = scope_gate(scope)
            declared = any(scope in limit.scopes for limit in self._tables.limits.values())
            if not declared and name not in self._tables.gates:
                raise NotFound(f"no task declares the scope {scope!r}")
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
            moved = sum(transitions.admit(self._tables, bucket, now) for bucket in chosen)
            return Admitted(moved, chosen[-1] if len(names) > len(chosen) else None)

    def _put(self, limit: Limit, now: Instant) -> None:
        tables = self._tables
        tables.limits[limit.name] = limit
        tables.raise_control_version()
        # Pending jobs of its keys are held, then admitted under the new number.
        active = [
            row
            for row in tables.index.limit_buckets.active(limit.name)
            if row.status is JobStatus.PENDING
        ]
        for row in active:
            bucket = row.job.limit_key
            transitions.transition(tables, row, Event.HOLD, JobStatus.HELD, now, bucket=bucket)
        for bucket in tables.index.limit_buckets.names():
            transitions.admit(tables, bucket, now)
