"""``tx=`` on memory: jobs, events and steps are stored when the caller's transaction commits, for
tests.

Python objects tell of their commit in two ways: SQLAlchemy has events, and others have a method
``on_commit(callback)`` (``forge_jobs.testing.Transaction``, Django's connections). The connections
of sqlite3, aiosqlite, psycopg and asyncpg tell nothing: what is stored with them is stored at once,
and a rollback does not remove it.
"""

import logging
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from forge_jobs.backends.shared import user_connections
from forge_jobs.backends.shared.rowwise import events, steps
from forge_jobs.backends.shared.rowwise.local_storage import LocalStorage
from forge_jobs.core import ids
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepWrite

_LOG: Final = logging.getLogger("forge_jobs.memory")
_SILENT: Final = frozenset({"sqlite3", "aiosqlite", "psycopg", "psycopg2", "asyncpg"})


class ReservedJob(NamedTuple):
    """A job with its key and id, which is stored at the commit."""

    job: NewJob
    reply: Enqueued
    enqueued_at: Instant


class ReservedStep(NamedTuple):
    """A step that is stored at the commit, if its claim is current then."""

    owner: int
    step: StepWrite


class JoinedTransaction:
    """What is stored at the end of one transaction that has not ended."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._writes: list[ReservedJob | ReservedStep | NewEvent] = []
        # How many writes there were when each of the open savepoints began.
        self._savepoints: list[int] = []

    def reserve(self, job: NewJob) -> Enqueued:
        """Take a key for a job; the reply that its storing would give now."""
        with self._storage.write() as tx:
            if job.dedupe_key is not None:
                for other in self._writes:
                    if not isinstance(other, ReservedJob):
                        continue
                    if (other.job.kind, other.job.dedupe_key) == (job.kind, job.dedupe_key):
                        known = other.reply
                        return Enqueued(known.key, known.id, True, known.status)
                holder = tx.key_holder(job.kind, job.dedupe_key)
                if holder is not None:
                    known_id = ids.job_id(holder.key, holder.enqueued_at, tx.tag)
                    return Enqueued(holder.key, known_id, True, holder.status)
            key, now = tx.tables.next_key("job"), tx.now
            run_at = after(now, job.delay_s) if job.run_at is None else job.run_at
            status = JobStatus.SCHEDULED if run_at > now else JobStatus.PENDING
            reply = Enqueued(key, ids.job_id(key, now, tx.tag), False, status)
            self._writes.append(ReservedJob(job, reply, now))
        return reply

    def send(self, event: NewEvent) -> SentEvent:
        """Send an event at the commit; the reply that sending it would give now."""
        if event.dedupe_key is not None:
            name = (event.name, event.dedupe_key)
            with self._storage.read() as now:
                is_taken = self._storage.tables.event_keys.get(name, 0) > now
            if is_taken or name in self._event_keys():
                return SentEvent(duplicate=True)
        self._writes.append(event)
        return SentEvent()

    def store_step(self, owner: int, step: StepWrite) -> None:
        """Store a step at the commit. LeaseLost or Conflict if it could not be stored now."""
        with self._storage.write() as tx:
            steps.check_in(tx, owner, step)
        self._writes.append(ReservedStep(owner, step))

    def commit(self) -> None:
        """Store everything. LeaseLost if the claim of a step is not current any more: then nothing
        is stored."""
        writes, self._writes = self._writes, []
        self._savepoints.clear()
        if not writes:
            return
        with self._storage.write() as tx:
            for write in writes:
                if isinstance(write, ReservedStep):
                    steps.check_in(tx, write.owner, write.step)
            for write in writes:
                match write:
                    case ReservedJob(job, reply, enqueued_at):
                        tx.insert_reserved(job, reply.key, enqueued_at)
                    case ReservedStep(owner, step):
                        steps.store_in(tx, owner, step)
                    case NewEvent():
                        events.send(tx, [write])

    def rollback(self) -> None:
        """Drop everything."""
        self._writes.clear()
        self._savepoints.clear()

    def _event_keys(self) -> set[tuple[str, str]]:
        sent = (write for write in self._writes if isinstance(write, NewEvent))
        return {(event.name, event.dedupe_key) for event in sent if event.dedupe_key is not None}

    def begin_savepoint(self) -> None:
        self._savepoints.append(len(self._writes))

    def release_savepoint(self) -> None:
        """End the innermost savepoint. One that began before the first write has no entry."""
        if self._savepoints:
            self._savepoints.pop()

    def rollback_savepoint(self) -> None:
        """Likewise, and drop what came since it began."""
        del self._writes[self._savepoints.pop() if self._savepoints else 0 :]


class UserTransactions:
    """The transactions that callers of one store have joined."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._joined: weakref.WeakKeyDictionary[Any, JoinedTransaction] = (
            weakref.WeakKeyDictionary()
        )
        self._warned: set[str] = set()

    def join(self, transaction: object) -> JoinedTransaction | None:
        """The transaction to write in; None if everything is to be stored at once. BadOption for an
        object that is no transaction."""
        if user_connections.is_async(transaction):
            raise user_connections.must_be_awaited(transaction)
        if user_connections.library(transaction) == "sqlalchemy":
            return self._join_sqlalchemy(user_connections.sqlalchemy_connection(transaction))
        return self._join_other(transaction)

    async def ajoin(self, transaction: object) -> JoinedTransaction | None:
        """``join`` for coroutines."""
        if user_connections.is_async_sqlalchemy(transaction):
            connection = await user_connections.async_sqlalchemy_connection(transaction)
            return self._join_sqlalchemy(connection.sync_connection)
        if user_connections.library(transaction) == "sqlalchemy":
            return self.join(transaction)
        return self._join_other(transaction)

    def _join_other(self, transaction: object) -> JoinedTransaction | None:
        library = user_connections.library(transaction)
        on_commit = getattr(transaction, "on_commit", None)
        if callable(on_commit):
            joined = JoinedTransaction(self._storage)
            on_commit(joined.commit)
            return joined
        if library in _SILENT:
            self._warn(library)
            return None
        raise user_connections.refused(
            transaction,
            "on memory:// pass forge_jobs.testing.Transaction(), a connection or session of "
            "SQLAlchemy, or an object with on_commit(callback)",
        )

    def _join_sqlalchemy(self, connection: Any) -> JoinedTransaction:
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise user_connections.refused(
                connection, "it is in autocommit mode, where no commit would ever store the job"
            )
        joined = self._joined.get(connection)
        if joined is None:
            joined = self._joined[connection] = JoinedTransaction(self._storage)
            listen: Callable[..., None] = import_module("sqlalchemy").event.listen
            # SQLAlchemy tells the name of a savepoint at its end only.
            for name, action in (
                ("commit", joined.commit),
                ("rollback", joined.rollback),
                ("savepoint", joined.begin_savepoint),
                ("release_savepoint", joined.release_savepoint),
                ("rollback_savepoint", joined.rollback_savepoint),
            ):
                listen(connection, name, _without_arguments(action), named=True)
        return joined

    def _warn(self, library: str) -> None:
        if library not in self._warned:
            self._warned.add(library)
            _LOG.warning(
                "memory:// cannot see the end of a transaction of %s: jobs with tx= are stored at "
                "once, and a rollback does not remove them",
                library,
            )


def _without_arguments(action: Callable[[], None]) -> Callable[..., None]:
    def call(**_: object) -> None:
        action()

    return call
