"""``tx=``: jobs that exist if and only if the caller's own transaction commits."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from forge_jobs.core.errors import BadOption, NotYet
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.store.store import Store

_LATER = {
    "psycopg": "psycopg connections come with the Postgres backend",
    "psycopg2": "psycopg connections come with the Postgres backend",
    "asyncpg": "asyncpg connections come with the Postgres backend",
    "sqlalchemy": "SQLAlchemy sessions come with the Postgres backend",
}


def enqueue_in(store: Store, tx: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs inside the open transaction of ``tx``.

    BadOption where the store has no such transactions or does not know the connection.
    """
    _check(store, tx)
    return store.enqueue_in(tx, jobs)


async def aenqueue_in(store: Store, tx: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """``enqueue_in`` from a coroutine: also for connections that must be awaited, where a store
    knows such."""
    _check(store, tx)
    awaited: Callable[[object, Sequence[NewJob]], Awaitable[Any]] | None
    awaited = getattr(store, "aenqueue_in", None)
    return store.enqueue_in(tx, jobs) if awaited is None else await awaited(tx, jobs)


def _check(store: Store, tx: object) -> None:
    accepted = store.capabilities.transactions
    if not accepted:
        raise BadOption(
            f"tx= does not work with the {store.capabilities.name} store: it has no transactions"
        )
    library = type(tx).__module__.partition(".")[0]
    if library not in accepted and library in _LATER:
        raise NotYet(f"tx= with {library} is not built yet: {_LATER[library]}")
