"""The contract ``Store``: all contracts of one backend, open, close, notifications, maintenance."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite

from .breakdowns import BreakdownStore
from .error_groups import ErrorGroupStore
from .events import EventStore
from .jobs import Exchange, Exchanged, JobStore
from .limits import Limits
from .metrics import MetricsStore
from .processes import ProcessStore
from .queues import Queues
from .schedules import CronSchedules
from .settings import SettingStore
from .steps import StepStore
from .token_buckets import TokenBuckets

Notify: TypeAlias = Callable[[], None]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a backend can do. Tests and callers ask for this, never for the backend's name.

    ``durable``: jobs survive the end of the process. ``multi_process``: several processes can share
    the store. ``sync_calls``: ``enqueue_sync`` and ``exchange_sync`` are implemented.
    ``transactions``: names of the connection types that ``enqueue_in`` accepts. ``server_side``: a
    server does the work, so that server and caller work at the same time.
    """

    name: str
    durable: bool
    multi_process: bool
    sync_calls: bool
    transactions: tuple[str, ...] = ()
    server_side: bool = False


class SchemaStatus(Struct, frozen=True):
    """Which schema a store has and which this code wants.

    ``current``: the last migration applied, the *additive* number; None while there is no schema
    of ours. ``wanted``: the last migration that this code knows. ``compatible``: the last migration
    that older code cannot live with; code that knows fewer migrations must not use the store.
    ``outdated_functions``: server functions that are missing or older than this code's.
    """

    current: int | None
    wanted: int
    compatible: int = 0
    outdated_functions: tuple[str, ...] = ()

    @property
    def is_too_new(self) -> bool:
        """Whether this code must not use the store."""
        return self.compatible > self.wanted

    @property
    def is_complete(self) -> bool:
        """Whether the store has everything this code needs; it may have more."""
        return (
            self.current is not None and self.current >= self.wanted and not self.outdated_functions
        )


class Severity(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One finding of ``forge doctor``; ``cure`` is the remedy."""

    severity: Severity
    subject: str
    message: str
    cure: str = ""


class StoreSize(Struct, frozen=True, kw_only=True):
    """The size of the store in bytes. ``total`` includes everything; ``log`` is the part of its own
    write-ahead log; ``parts`` are tables or files, the largest first."""

    total: int
    log: int = 0
    parts: tuple[tuple[str, int], ...] = ()


class Subscription(Protocol):
    """A subscription to notifications."""

    async def close(self) -> None:
        """End the subscription. Idempotent."""
        ...


class Maintenance(Protocol):
    """The contract for maintenance of the database. No method needs a prior ``open``."""

    async def migrate(self) -> SchemaStatus:
        """Create the database if necessary and bring its schema up to date."""
        ...

    async def schema_status(self) -> SchemaStatus:
        """The version of the stored schema and the version this code needs."""
        ...

    async def drop(self) -> None:
        """Delete the database or schema with everything in it; tables of the application stay."""
        ...

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        """The findings of ``forge doctor`` about this store; without ``deep`` only those that do
        not read all of it."""
        ...

    async def size(self) -> StoreSize:
        """The present size, without reading the data; 0 for a store in memory or one that does not
        exist."""
        ...

    def describe(self) -> dict[str, str]:
        """Facts for operators: backend, address, versions. Never a secret."""
        ...


class Store(Protocol):
    """All contracts of one backend. ``tag`` marks this database in public job ids.

    ``queues``, ``limits``, ``schedules`` and ``token_buckets`` are the classes of this package over
    the backend's ``SettingStore``, ``LimitStore``, ``ScheduleStore`` and ``TokenBucketStore``.
    """

    @property
    def jobs(self) -> JobStore: ...
    @property
    def processes(self) -> ProcessStore: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def schedules(self) -> CronSchedules: ...
    @property
    def token_buckets(self) -> TokenBuckets: ...
    @property
    def metrics(self) -> MetricsStore: ...
    @property
    def breakdowns(self) -> BreakdownStore: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def settings(self) -> SettingStore: ...
    @property
    def steps(self) -> StepStore: ...
    @property
    def events(self) -> EventStore: ...
    @property
    def error_groups(self) -> ErrorGroupStore: ...
    @property
    def maintenance(self) -> Maintenance: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def tag(self) -> int: ...

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; with ``migrate`` create or upgrade the schema. SchemaMismatch for a schema newer
        than this code, or an older one without ``migrate``. Idempotent."""
        ...

    async def close(self) -> None:
        """Release all resources. Idempotent. A closed store may be opened again."""
        ...

    async def now(self) -> Instant:
        """Store time: the clock that decides about leases, due times and schedules."""
        ...

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """``jobs.enqueue`` on the calling thread, without an event loop. Opens the store if it is
        not open. Only where ``capabilities.sync_calls``."""
        ...

    def try_enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        """``jobs.enqueue`` on the calling thread, if an open store without ``sync_calls`` can do
        that at the moment. None, without an effect, if it cannot."""
        ...

    def exchange_sync(self, request: Exchange) -> Exchanged:
        """``jobs.exchange`` on the calling thread, without an event loop. Opens the store if it is
        not open; may block until other writers are done. Only where ``capabilities.sync_calls``."""
        ...

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs inside the caller's open transaction: they exist if and only if it commits.
        BadOption for a connection type this backend does not support, one to another database, or
        one that must be awaited.
        """
        ...

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """``enqueue_in`` for coroutines; also takes the connections that must be awaited."""
        ...

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        """Send events inside the caller's open transaction: they exist if and only if it commits.
        Jobs that wait for them are resumed by the next exchange of a worker. Takes the connections
        of ``enqueue_in``."""
        ...

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        """``send_in`` for coroutines; also takes the connections that must be awaited."""
        ...

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        """Store a step inside the caller's open transaction, as its last statement.

        LeaseLost if the claim is no longer current, Conflict if the name is stored already; either
        leaves the transaction unable to commit. Until the commit nobody can take the job from its
        owner. Takes the connections of ``enqueue_in``.
        """
        ...

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        """``store_step_in`` for coroutines; also takes the connections that must be awaited."""
        ...

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        """Call ``notify`` soon after jobs of these queues became due or an operator changed
        something.

        ``notify`` must be cheap; it is called from any thread. A notification may come late, twice,
        or not at all. The subscription belongs to the calling event loop.
        """
        ...

    def after_fork(self) -> None:
        """Call in a forked child: abandons the parent's resources without touching them. The next
        use opens the store again."""
        ...
