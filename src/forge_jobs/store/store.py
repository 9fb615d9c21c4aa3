"""The whole store: the contracts, opening and closing, waking up, and looking after the schema."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob

from .jobs import Exchange, Exchanged, JobStore
from .limits import LimitStore
from .metrics import MetricsStore
from .processes import ProcessStore
from .queues import QueueStore
from .schedules import ScheduleStore
from .settings import SettingStore

Notify: TypeAlias = Callable[[], None]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What tests and callers may ask for instead of a backend's name.

    ``durable``: survives the end of the process. ``multi_process``: several processes share it.
    ``sync_calls``: ``enqueue_sync`` and ``exchange_sync`` are there. ``transactions``: names of the
    connection types that ``enqueue_in`` accepts. ``apart``: a server does the work, so that it and
    the caller can work at the same time.
    """

    name: str
    durable: bool
    multi_process: bool
    sync_calls: bool
    transactions: tuple[str, ...] = ()
    apart: bool = False


class SchemaStatus(Struct, frozen=True):
    """``current`` is None while the database holds no schema of ours."""

    current: int | None
    wanted: int


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One line of ``forge doctor``; ``cure`` says what to do about it."""

    severity: Severity
    subject: str
    message: str
    cure: str = ""


class StoreSize(Struct, frozen=True, kw_only=True):
    """How large the store is, in bytes. ``total`` has everything of ours in it; ``log`` is the part
    that a write-ahead log of our own takes; ``parts`` are tables or files, the largest first."""

    total: int
    log: int = 0
    parts: tuple[tuple[str, int], ...] = ()


class Subscription(Protocol):
    """A standing wish to be woken."""

    async def close(self) -> None:
        """End it. Closing twice is fine."""
        ...


class Maintenance(Protocol):
    """Looking after the database itself; none of this needs a prior ``open``."""

    async def migrate(self) -> SchemaStatus:
        """Create the database if need be and bring its schema up to date."""
        ...

    async def schema_status(self) -> SchemaStatus:
        """Which schema is there and which this code wants."""
        ...

    async def drop(self) -> None:
        """Remove the database or schema with everything in it."""
        ...

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        """What ``forge doctor`` says about this store; without ``deep`` nothing that reads all of
        it."""
        ...

    async def size(self) -> StoreSize:
        """How large it is now, without reading it; nothing for a store in memory or one that is not
        there."""
        ...

    def describe(self) -> dict[str, str]:
        """Facts for people: backend, place, versions. Never a secret."""
        ...


class Store(Protocol):
    """Everything a backend offers. ``tag`` marks this database in public job ids."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def processes(self) -> ProcessStore: ...
    @property
    def queues(self) -> QueueStore: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def metrics(self) -> MetricsStore: ...
    @property
    def limits(self) -> LimitStore: ...
    @property
    def settings(self) -> SettingStore: ...
    @property
    def maintenance(self) -> Maintenance: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def tag(self) -> int: ...

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; with ``migrate`` create or upgrade the schema. SchemaMismatch for a schema newer
        than this code, or an older one without ``migrate``. Opening twice is fine."""
        ...

    async def close(self) -> None:
        """Let go of everything. Closing twice is fine; a closed store may be opened again."""
        ...

    async def now(self) -> Instant:
        """Store time: the clock that decides about leases, due times and schedules."""
        ...

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """``jobs.enqueue`` on the calling thread, without an event loop and on the shortest path;
        opens the store by itself. Only where ``capabilities.sync_calls``."""
        ...

    def exchange_sync(self, request: Exchange) -> Exchanged:
        """``jobs.exchange`` on the calling thread, without an event loop; opens the store by
        itself. Only where ``capabilities.sync_calls``."""
        ...

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs inside the caller's own open transaction: they exist if and only if it
        commits. BadOption for a connection this backend does not know, one to another database, or
        one that must be awaited.
        """
        ...

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """``enqueue_in`` for coroutines; also takes the connections that must be awaited."""
        ...

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        """Call ``notify`` (cheap, from any thread) soon after jobs of these queues became due or
        operators changed something. A hint: it may come late, twice, or not at all. Lives on the
        calling event loop."""
        ...

    def after_fork(self) -> None:
        """In a forked child: leave what is the parent's alone; the next use opens anew."""
        ...
