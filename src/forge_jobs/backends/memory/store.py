"""The memory store: the contracts over one set of tables."""

from collections.abc import Sequence

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.limits import Limits
from forge_jobs.store.queues import Queues
from forge_jobs.store.schedules import CronSchedules
from forge_jobs.store.store import (
    Capabilities,
    Finding,
    Notify,
    SchemaStatus,
    Severity,
    StoreSize,
    Subscription,
)
from forge_jobs.store.token_buckets import TokenBuckets

from .jobs import MemoryJobs
from .limits import MemoryLimits
from .metrics import MemoryMetrics
from .processes import MemoryProcesses
from .schedules import MemorySchedules, MemoryTokenBuckets
from .settings import MemorySettings
from .tables import Listener, Tables

_SCHEMA = SchemaStatus(1, 1, 1)


class MemoryStore:
    """A store inside one process. Closing it deletes nothing; the end of the process does."""

    capabilities = Capabilities(name="memory", durable=False, multi_process=False, sync_calls=True)

    def __init__(self, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._clock = clock
        self._tables = Tables(clock, entropy)
        self.jobs = MemoryJobs(self._tables)
        self.processes = MemoryProcesses(self._tables)
        self.settings = settings = MemorySettings(self._tables)
        limits = MemoryLimits(self._tables)
        self.queues = Queues(settings, limits)
        self.limits = Limits(settings, limits, self.now)
        self.schedules = CronSchedules(settings, MemorySchedules(self._tables))
        self.token_buckets = TokenBuckets(settings, MemoryTokenBuckets(self._tables), self.now)
        self.metrics = MemoryMetrics(self._tables)
        self.maintenance = MemoryMaintenance(self._tables)

    @property
    def tag(self) -> int:
        return self._tables.tag

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
        with self._tables.read():
            self._tables.listeners.append(listener)
        return MemorySubscription(self._tables, listener)

    def after_fork(self) -> None:
        self._tables.after_fork()


class MemorySubscription:
    """One subscription; its callback is called on the thread that made the write."""

    def __init__(self, tables: Tables, listener: Listener) -> None:
        self._tables = tables
        self._listener = listener

    async def close(self) -> None:
        with self._tables.read():
            if self._listener in self._tables.listeners:
                self._tables.listeners.remove(self._listener)


class MemoryMaintenance:
    """``Maintenance`` on memory: there is no schema."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def migrate(self) -> SchemaStatus:
        return _SCHEMA

    async def schema_status(self) -> SchemaStatus:
        return _SCHEMA

    async def drop(self) -> None:
        with self._tables.write():
            self._tables.clear()
            self._tables.raise_control_version()

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        with self._tables.read():
            jobs = len(self._tables.jobs)
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
