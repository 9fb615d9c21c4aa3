"""``tx=`` on memory: jobs are stored when the caller's transaction commits, for tests.

Python objects tell of their commit in two ways: SQLAlchemy has events, and others have a method
``on_commit(callback)`` (``forge_jobs.testing.Transaction``, Django's connections). The connections
of sqlite3, aiosqlite, psycopg and asyncpg tell nothing: their jobs are stored at once, and a
rollback does not remove them.
"""

import logging
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from forge_jobs.backends.shared import user_connections
from forge_jobs.backends.shared.rowwise.local_storage import LocalStorage
from forge_jobs.core import ids
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.status import JobStatus

_LOG: Final = logging.getLogger("forge_jobs.memory")
_SILENT: Final = frozenset({"sqlite3", "aiosqlite", "psycopg", "asyncpg"})


class ReservedJob(NamedTuple):
    """A job with its key and id, which is stored at the commit."""

    job: NewJob
    reply: Enqueued
    enqueued_at: Instant


class JoinedTransaction:
    """The jobs of one transaction that has not ended."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._jobs: list[ReservedJob] = []
        # How many jobs there were when each of the open savepoints began.
        self._savepoints: list[int] = []

    def reserve(self, job: NewJob) -> Enqueued:
        """Take a key for a job; the reply that its storing would give now."""
        with self._storage.write() as tx:
            if job.dedupe_key is not None:
                for other in self._jobs:
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
            self._jobs.append(ReservedJob(job, reply, now))
        return reply

    def commit(self) -> None:
        """Store the jobs."""
        jobs, self._jobs = self._jobs, []
        self._savepoints.clear()
        if jobs:
            with self._storage.write() as tx:
                for job, reply, enqueued_at in jobs:
                    tx.insert_reserved(job, reply.key, enqueued_at)

    def rollback(self) -> None:
        """Drop the jobs."""
        self._jobs.clear()
        self._savepoints.clear()

    def begin_savepoint(self) -> None:
        self._savepoints.append(len(self._jobs))

    def release_savepoint(self) -> None:
        """End the innermost savepoint. One that began before the first job has no entry."""
        if self._savepoints:
            self._savepoints.pop()

    def rollback_savepoint(self) -> None:
        """Likewise, and drop the jobs since it began."""
        del self._jobs[self._savepoints.pop() if self._savepoints else 0 :]


class UserTransactions:
    """The transactions that callers of one store have joined."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._joined: weakref.WeakKeyDictionary[Any, JoinedTransaction] = (
            weakref.WeakKeyDictionary()
        )
        self._warned: set[str] = set()

    def join(self, transaction: object) -> JoinedTransaction | None:
        """The transaction to reserve jobs in; None if the job is to be stored at once. BadOption
        for an object that is no transaction."""
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
