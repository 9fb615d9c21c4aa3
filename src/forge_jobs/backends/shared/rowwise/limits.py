"""The limit contract of a row-wise store: limits, scope gates, and how full limit buckets are."""

from collections.abc import Sequence

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.limits import (
    LANE,
    SCOPE,
    UNBOUNDED,
    Declared,
    Limit,
    limit_of,
    refilled,
    scope_gate,
    with_declared,
    with_operator_change,
)
from forge_jobs.core.status import JobStatus
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.limits import Admitted, LimitBucket, LimitChange

from . import limit_buckets, transitions
from .limited_claim import running_under
from .storage import Storage
from .tables import Tables
from .transaction import Transaction, max_per_key


class RowwiseLimits:
    """``LimitStore`` row by row; see ``forge_jobs.store.limits``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def publish(self, declared: Sequence[Declared]) -> None:
        with self._storage.write() as tx:
            now = tx.now
            for declaration in declared:
                known = self._tables.limits.get(declaration.name)
                limit = with_declared(known, declaration, now)
                if limit is not known:
                    self._put(tx, limit)

    async def all(self) -> list[Limit]:
        with self._storage.read() as now:
            return [refilled(limit, now) for _, limit in sorted(self._tables.limits.items())]

    async def change(self, name: str, change: LimitChange) -> Limit:
        with self._storage.write() as tx:
            now = tx.now
            known = self._tables.limits.get(name)
            limit = with_operator_change(known, name, structs.asdict(change), now)
            self._put(tx, limit)
            return limit

    async def reset(self, name: str) -> None:
        with self._storage.write() as tx:
            now = tx.now
            limit = self._tables.limits.get(name)
            if limit is None:
                raise NotFound(f"there is no limit {name!r}")
            self._put(tx, structs.replace(limit, by_operator=False, updated_at=now))

    async def gates(self) -> dict[str, Gate]:
        with self._storage.read():
            return {
                name.removeprefix(SCOPE): gate
                for name, gate in sorted(self._tables.gates.items())
                if name.startswith(SCOPE) and gate != OPEN
            }

    async def open_scope(self, scope: str) -> None:
        with self._storage.write() as tx:
            name = scope_gate(scope)
            declared = any(scope in limit.scopes for limit in self._tables.limits.values())
            if not declared and name not in self._tables.gates:
                raise NotFound(f"no task declares the scope {scope!r}")
            self._tables.gates.pop(name, None)
            tx.raise_control_version()

    async def bucket(self, name: str) -> LimitBucket:
        with self._storage.read():
            tables, index = self._tables, self._tables.index
            if name.startswith(LANE):
                holder = index.lane_slot_holder(name)
                first = next(index.lane(name), None) if holder is None else holder
                return LimitBucket(
                    name=name,
                    taken=0 if holder is None else 1,
                    capacity=1,
                    first=None if first is None else tables.jobs[first].id,
                )
            if "/" in name:
                capacity = max_per_key(tables, name)
                return LimitBucket(
                    name=name,
                    taken=index.slots_in_use(name),
                    capacity=None if capacity == UNBOUNDED else capacity,
                )
            limit = tables.limits.get(name)
            capacity = None if limit is None else limit.cap
            return LimitBucket(name=name, taken=running_under(tables, name), capacity=capacity)

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        with self._storage.write() as tx:
            names = [name for name in self._tables.index.buckets() if name > (after or "")]
            chosen = names[: max(limit, 1)]
            admitted = sum(limit_buckets.admit(tx, bucket) for bucket in chosen)
            return Admitted(admitted, chosen[-1] if len(names) > len(chosen) else None)

    def _put(self, tx: Transaction, limit: Limit) -> None:
        tx.tables.limits[limit.name] = limit
        tx.raise_control_version()
        reapply(tx, limit.name)


def reapply(tx: Transaction, name: str) -> None:
    """Hold the pending jobs of a limit's keys, then admit as many as its numbers allow."""
    index = tx.tables.index
    keys = [key for key in index.limit_keys() if limit_of(key) == name]
    rows = list(tx.load([job for key in keys for job in index.active(key)]).values())
    pending = [row for row in rows if row.status is JobStatus.PENDING]
    for row in pending:
        transitions.hold(tx, row, row.limit_key or "")
    tx.store(pending)
    for bucket in index.buckets():
        if limit_of(bucket) == name:
            limit_buckets.admit(tx, bucket)
