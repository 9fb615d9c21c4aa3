"""The memory store: the contracts over one set of tables."""

from collections.abc import Sequence

from forge_jobs.backends.shared.rowwise.jobs import RowwiseJobs
from forge_jobs.backends.shared.rowwise.metrics import RowwiseMetrics
from forge_jobs.backends.shared.rowwise.processes import RowwiseProcesses
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.store import (
    Capabilities,
    Finding,
    Notify,
    SchemaStatus,
    Severity,
    StoreSize,
    Subscription,
)

from .limits import MemoryLimits
from .queues import MemoryQueues
from .schedules import MemorySchedules
from .settings import MemorySettings
from .storage import Listener, MemoryStorage

_SCHEMA = SchemaStatus(1, 1, 1)


class MemoryStore:
    """A store inside one process. Closing it deletes nothing; the end of the process does."""

    capabilities = Capabilities(name="memory", durable=False, multi_process=False, sync_calls=True)

    def __init__(self, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._clock = clock
        self._storage = MemoryStorage(clock, entropy)
        self.jobs = RowwiseJobs(self._storage)
        self.processes = RowwiseProcesses(self._storage)
        self.queues = MemoryQueues(self._storage)
        self.schedules = MemorySchedules(self._storage)
        self.metrics = RowwiseMetrics(self._storage)
        self.limits = MemoryLimits(self._storage)
        self.settings = MemorySettings(self._storage)
        self.maintenance = MemoryMaintenance(self._storage)

    @property
    def tag(self) -> int:
        return self._storage.tables.tag

    async def open(self, *, migrate: bool = True) -> None:
        pass

    async def close(self) -> None:
        pass

    async def now(self) -> Instant:
        return self._clock.now()

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.jobs.enqueue_sync(jobs)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        return self.jobs.exchange_sync(request)

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise BadOption(
            f"tx={type(transaction).__name__} cannot be joined: the memory store knows no "
            "transactions, use a database"
        )

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.enqueue_in(transaction, jobs)

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        listener = Listener(frozenset(queues), notify)
        with self._storage.read():
            self._storage.listeners.append(listener)
        return MemorySubscription(self._storage, listener)

    def after_fork(self) -> None:
        self._storage.after_fork()


class MemorySubscription:
    """One subscription; its callback is called on the thread that made the write."""

    def __init__(self, storage: MemoryStorage, listener: Listener) -> None:
        self._storage = storage
        self._listener = listener

    async def close(self) -> None:
        with self._storage.read():
            if self._listener in self._storage.listeners:
                self._storage.listeners.remove(self._listener)


class MemoryMaintenance:
    """``Maintenance`` on memory: there is no schema."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    async def migrate(self) -> SchemaStatus:
        return _SCHEMA

    async def schema_status(self) -> SchemaStatus:
        return _SCHEMA

    async def drop(self) -> None:
        with self._storage.write() as tx:
            self._storage.clear()
            tx.tables = self._storage.tables
            tx.raise_control_version()

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        with self._storage.read():
            jobs = len(self._storage.tables.jobs)
        return [
            Finding(Severity.OK, "store", f"in memory, {jobs} jobs"),
            Finding(
                Severity.WARNING,
                "durability",
                "jobs in memory are lost when the process ends",
                "use sqlite:///forge.db",
            ),
        ]

    async def size(self) -> StoreSize:
        return StoreSize(total=0)

    def describe(self) -> dict[str, str]:
        return {"backend": "memory", "place": "this process"}
