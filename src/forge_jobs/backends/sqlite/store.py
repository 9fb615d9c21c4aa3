"""The SQLite store: all contracts over one writer and one reader."""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from forge_jobs.core.errors import StoreReplaced
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.limits import Limits
from forge_jobs.store.queues import Queues
from forge_jobs.store.schedules import CronSchedules
from forge_jobs.store.store import Capabilities, Notify, Subscription
from forge_jobs.store.token_buckets import TokenBuckets

from . import schema, user_transactions
from .breakdowns import SqliteBreakdowns
from .error_group_store import SqliteErrorGroups
from .history import SqliteEvents, SqliteStepStore
from .io.blocking import run_blocking
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .jobs import SqliteJobs
from .limits import SqliteLimits
from .maintenance import SqliteMaintenance
from .metrics import SqliteMetrics
from .notify import Notifications
from .os import liveness_file
from .os.database_file import DatabaseFile
from .os.fork import FORK_GUARD
from .os.liveness_file import LivenessFiles
from .processes import SqliteProcesses
from .schedules import SqliteSchedules, SqliteTokenBuckets
from .settings import SqliteSettings

T = TypeVar("T")

_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()


class SqliteStore:
    """Jobs in one SQLite file.

    ``synchronous`` decides which transactions are synced to disk before they are acknowledged:
    ``mixed`` those that store a job, ``full`` all, ``normal`` none (the next checkpoint syncs).
    """

    capabilities = Capabilities(
        name="sqlite",
        durable=True,
        multi_process=True,
        sync_calls=True,
        transactions=("sqlite3", "aiosqlite", "sqlalchemy"),
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        synchronous: str = "mixed",
    ) -> None:
        self._database = database = DatabaseFile.at(path)
        self._clock = clock
        self._entropy = entropy
        self._notifications = Notifications(database, clock, entropy)
        self._liveness = LivenessFiles(database, clock)
        self._writer = Writer(
            database, clock, synchronous=synchronous, notify=self._notifications.notify
        )
        self._reader = Reader(database, clock)
        self._joined_keys = joined_keys = user_transactions.JoinedKeys()
        self.jobs = SqliteJobs(
            database, self._writer, self._reader, self._liveness, clock, joined_keys.next_now
        )
        self.processes = SqliteProcesses(
            database, self._writer, self._reader, self._liveness, clock
        )
        self.steps = SqliteStepStore(self._writer, self._reader)
        self.events = SqliteEvents(self._writer, self._reader)
        self.error_groups = SqliteErrorGroups(self._writer, self._reader)
        self.settings = settings = SqliteSettings(self._writer, self._reader, clock)
        self._limits = SqliteLimits(self._writer, self._reader)
        self.queues = Queues(settings, self._limits)
        self.limits = Limits(settings, self._limits, self.now)
        self.schedules = CronSchedules(settings, SqliteSchedules(self._writer, self._reader, clock))
        self.token_buckets = TokenBuckets(settings, SqliteTokenBuckets(self._writer), self.now)
        self.metrics = SqliteMetrics(self._writer, self._reader)
        self.breakdowns = SqliteBreakdowns(self._reader)
        self.maintenance = SqliteMaintenance(
            database, clock, entropy, synchronous, self._close_here
        )
        self._lock = threading.Lock()
        self._open = False
        self._migrates = True
        self._tag = 0
        _stores.add(self)

    @property
    def tag(self) -> int:
        return self._tag

    async def open(self, *, migrate: bool = True) -> None:
        self._migrates = migrate
        if not self._open:
            await run_blocking(self._open_here)

    def _open_here(self) -> None:
        with self._lock:
            if not self._open:
                # In this order: a thread inside the guard must not wait for one that closes.
                with FORK_GUARD.use(self._database.path):
                    self._connect()
                self._open = True

    def _connect(self) -> None:
        database = self._database
        if self._migrates:
            found, tag = schema.migrate(database, self._clock, self._entropy)
        else:
            found, tag = schema.read_schema(database, self._clock)
        schema.check(database, found)
        self._tag = self.jobs.tag = self.metrics.tag = self._limits.tag = tag
        self.steps.tag = self.events.tag = tag
        self._writer.open(tag)
        self._reader.open()

    async def close(self) -> None:
        await self._notifications.close_listeners()
        if self._open:
            await run_blocking(self._close_here)

    def _close_here(self) -> None:
        with self._lock:
            self._open = False
            self._reader.close()
            self._writer.close()
            self._notifications.close()
            self._liveness.close()

    async def now(self) -> Instant:
        return self._clock.now()

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not self._open:
            self._open_here()
        return self.jobs.enqueue_sync(jobs)

    def try_enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        return self.enqueue_sync(jobs)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        if not self._open:
            self._open_here()
        return self.jobs.exchange_sync(request)

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._write_in(transaction, self._joined_keys.insert_jobs(jobs))

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._awrite_in(transaction, self._joined_keys.insert_jobs(jobs))

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return self._write_in(transaction, user_transactions.send_events(events))

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return await self._awrite_in(transaction, user_transactions.send_events(events))

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        self._write_in(transaction, user_transactions.store_step(owner, step))

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        await self._awrite_in(transaction, user_transactions.store_step(owner, step))

    def _write_in(self, transaction: object, operation: Callable[[Tx], T]) -> T:
        return self._announce(
            *user_transactions.write(
                self._database, transaction, operation, self._clock.now(), self._tag_in
            )
        )

    async def _awrite_in(self, transaction: object, operation: Callable[[Tx], T]) -> T:
        return self._announce(
            *await user_transactions.awrite(
                self._database, transaction, operation, self._clock.now(), self._tag_in
            )
        )

    def _announce(self, answer: T, queues: set[str]) -> T:
        # Sent before the user's commit: listeners poll more often for a while.
        if queues:
            self._notifications.notify(queues, control_changed=False, uncommitted=True)
        return answer

    def _tag_in(self, execute: schema.Execute) -> int:
        """The tag, inside a user's transaction."""
        if self._open:
            if schema.tag_of(execute) != self._tag:
                raise StoreReplaced(
                    "tx= is connected to a file that was removed or replaced, and is no longer "
                    f"{self._database.path}: open that connection anew"
                )
            return self._tag
        may_migrate = self._migrates
        return schema.join(
            self._database, execute, self._clock, self._entropy, may_migrate=may_migrate
        )

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        return self._notifications.listen(queues, notify)

    def after_fork(self) -> None:
        """In a forked child: locks and sockets belong to the parent. Connections were closed before
        the fork (see ``os.fork``); the next use opens new ones."""
        self._lock = threading.Lock()
        self._notifications.after_fork()
        self._liveness.close()


def _after_fork_in_child() -> None:
    liveness_file.close_all()
    for store in list(_stores):
        store.after_fork()


# Registered after the hooks of ``os.fork``, which close all connections before the fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
