"""A store of one process on row-wise rules: the contracts over one storage."""

from collections.abc import Sequence

from forge_jobs.core.errors import BadOption
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.limits import Limits
from forge_jobs.store.queues import Queues
from forge_jobs.store.schedules import CronSchedules
from forge_jobs.store.store import (
    Capabilities,
    Notify,
    SchemaStatus,
    StoreSize,
    Subscription,
)
from forge_jobs.store.token_buckets import TokenBuckets

from .breakdowns import RowwiseBreakdowns
from .error_groups import RowwiseErrorGroups
from .history import RowwiseEvents, RowwiseSteps
from .jobs import RowwiseJobs
from .limits import RowwiseLimits
from .local_storage import Listener, LocalStorage
from .metrics import RowwiseMetrics
from .processes import RowwiseProcesses
from .schedules import RowwiseSchedules, RowwiseTokenBuckets
from .settings import RowwiseSettings

_SCHEMA = SchemaStatus(1, 1, 1)


class RowwiseStore:
    """Every part of ``forge_jobs.store.Store`` but ``capabilities`` and ``maintenance``."""

    capabilities: Capabilities

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self.jobs = RowwiseJobs(storage)
        self.processes = RowwiseProcesses(storage)
        self.metrics = RowwiseMetrics(storage)
        self.breakdowns = RowwiseBreakdowns(storage)
        self.settings = settings = RowwiseSettings(storage)
        self.steps = RowwiseSteps(storage)
        self.events = RowwiseEvents(storage)
        self.error_groups = RowwiseErrorGroups(storage)
        limits = RowwiseLimits(storage)
        self.queues = Queues(settings, limits)
        self.limits = Limits(settings, limits, self.now)
        self.schedules = CronSchedules(settings, RowwiseSchedules(storage))
        self.token_buckets = TokenBuckets(settings, RowwiseTokenBuckets(storage), self.now)

    @property
    def tag(self) -> int:
        return self._storage.tables.tag

    async def open(self, *, migrate: bool = True) -> None:
        pass

    async def close(self) -> None:
        pass

    async def now(self) -> Instant:
        with self._storage.read() as now:
            return now

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.jobs.enqueue_sync(jobs)

    def try_enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        return self.enqueue_sync(jobs)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        return self.jobs.exchange_sync(request)

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise self._cannot_join(transaction)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.enqueue_in(transaction, jobs)

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        raise self._cannot_join(transaction)

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return self.send_in(transaction, events)

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        raise self._cannot_join(transaction)

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        self.store_step_in(transaction, owner, step)

    def _cannot_join(self, transaction: object) -> BadOption:
        return BadOption(
            f"tx={type(transaction).__name__} cannot be joined: the {self.capabilities.name} store "
            "knows no transactions, use a database"
        )

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        listener = Listener(frozenset(queues), notify)
        self._storage.subscribe(listener)
        return LocalSubscription(self._storage, listener)

    def after_fork(self) -> None:
        self._storage.after_fork()


class LocalSubscription:
    """One subscription; its callback is called on the thread that made the write."""

    def __init__(self, storage: LocalStorage, listener: Listener) -> None:
        self._storage = storage
        self._listener = listener

    async def close(self) -> None:
        self._storage.unsubscribe(self._listener)


class LocalMaintenance:
    """The part of ``Maintenance`` that is the same for every store without a schema."""

    def __init__(self, storage: LocalStorage) -> None:
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

    async def size(self) -> StoreSize:
        return StoreSize(total=0)
