"""The limit contract of a row-wise store: gates, and how full limit buckets are."""

from forge_jobs.core.limits import LANE, UNBOUNDED, limit_of
from forge_jobs.core.status import JobStatus
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.limits import Admitted, LimitBucket

from . import limit_buckets, transitions
from .limited_claim import running_under
from .storage import Storage
from .tables import Tables
from .transaction import Transaction, max_per_key


class RowwiseLimits:
    """``LimitStore`` row by row; see ``forge_jobs.store.limits`` for what each method promises."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def gates(self) -> dict[str, Gate]:
        with self._storage.read():
            gates = sorted(self._tables.gates.items())
            return {name: gate for name, gate in gates if gate != OPEN}

    async def open_gate(self, name: str) -> None:
        with self._storage.write() as tx:
            tx.set_gate(name, OPEN)
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


def reapply(tx: Transaction, name: str) -> None:
    """Apply a changed limit to the jobs of its keys that have not started: the pending ones are
    held, then as many are admitted as the new number allows."""
    index = tx.tables.index
    keys = [key for key in index.limit_keys() if limit_of(key) == name]
    rows = tx.load([job for key in keys for job in index.active(key)]).values()
    pending = [row for row in rows if row.status is JobStatus.PENDING]
    for row in pending:
        transitions.hold(tx, row, row.limit_key or "")
    tx.store(pending)
    for bucket in index.buckets():
        if limit_of(bucket) == name:
            limit_buckets.admit(tx, bucket)
