"""``tx=``: enqueues jobs inside a user's own transaction, through the user's own connection.

Supported are connections of asyncpg and psycopg, and connections and sessions of SQLAlchemy. None
of these libraries is imported unless one of its objects is passed in. Asynchronous connections need
``aenqueue_in``.
"""

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, Final

from forge_jobs.core.errors import BadOption, ForgeError
from forge_jobs.core.job import Enqueued, NewJob

from . import rows
from .connection import error_mapping
from .connection.server import Server

LIBRARIES: Final = ("asyncpg", "psycopg", "sqlalchemy")
_WRONG_DATABASE: Final = frozenset({"FJ001", "42883", "3F000", "42P01"})
_COLUMNS: Final = "e_ordinal, e_key, e_at, e_status, e_duplicate"
_SUPPORTED: Final = (
    "pass a connection of asyncpg or psycopg, or a connection or session of SQLAlchemy, to the "
    "database that holds the jobs"
)

Rows = Sequence[Any]


class UserTransactions:
    """Enqueues through connections of the user."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._function = f"{server.address.schema}.enqueue_json_v1"
        self.tag = 0

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue through a synchronous connection."""
        run = self._sync_runner(transaction)
        try:
            found = run(self._values(jobs))
        except Exception as error:
            raise self._translated(error) from error
        return self._replies(found)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue through an asynchronous connection, or a synchronous one."""
        run = self._async_runner(transaction)
        if run is None:
            return self.enqueue_in(transaction, jobs)
        try:
            found = await run(self._values(jobs))
        except Exception as error:
            raise self._translated(error) from error
        return self._replies(found)

    def _sync_runner(self, transaction: object) -> Callable[[tuple[Any, ...]], Rows]:
        library, name = _origin(transaction)
        if self._async_runner(transaction) is not None:
            raise BadOption(f"tx={name} is asynchronous: use aenqueue with it")
        given: Any = transaction
        if library == "psycopg" and _has(given, "cursor", "autocommit"):
            _check_psycopg(given)
            return lambda values: _psycopg(given, self._query("%s"), values)
        if library == "sqlalchemy" and _has(given, "execute", "connection"):
            query = self._sqlalchemy_query(given)
            return lambda values: given.execute(query, _named(values)).fetchall()
        raise BadOption(f"tx={name} cannot be joined: {_SUPPORTED}")

    def _async_runner(
        self, transaction: object
    ) -> Callable[[tuple[Any, ...]], Awaitable[Rows]] | None:
        library, name = _origin(transaction)
        given: Any = transaction
        if library == "asyncpg" and _has(given, "fetch", "is_in_transaction"):
            if not given.is_in_transaction():
                raise BadOption(_no_transaction(name, "open one with connection.transaction()"))
            query = self._query("${}")
            return lambda values: given.fetch(query, *values)
        if library == "psycopg" and name.startswith("Async") and _has(given, "cursor"):
            _check_psycopg(given)
            return lambda values: _apsycopg(given, self._query("%s"), values)
        if library == "sqlalchemy" and name in ("AsyncConnection", "AsyncSession"):
            return lambda values: _asqlalchemy(given, self._sqlalchemy_query(given), values)
        return None

    def _query(self, placeholder: str) -> str:
        one, two, three, four = (placeholder.format(n) for n in range(1, 5))
        return (
            f"SELECT {_COLUMNS} FROM {self._function}"  # noqa: S608 - our own, checked name
            f"(CAST({one} AS bigint), CAST({two} AS text), CAST({three} AS text), "
            f"CAST({four} AS json))"
        )

    def _sqlalchemy_query(self, given: Any) -> Any:
        dialect = _dialect(given)
        if dialect != "postgresql":
            raise BadOption(f"tx= is connected to {dialect}, but the jobs are in Postgres")
        return import_module("sqlalchemy").text(self._query(":p{}"))

    def _values(self, jobs: Sequence[NewJob]) -> tuple[Any, ...]:
        return (
            self._server.store_clock.bind(),
            str(self.tag),
            self._server.address.channel,
            rows.as_json([rows.plain(job) for job in jobs]),
        )

    def _replies(self, found: Rows) -> list[Enqueued]:
        return [rows.enqueued(row, self.tag) for row in sorted(found, key=lambda row: row[0])]

    def _translated(self, error: Exception) -> ForgeError:
        if isinstance(error, ForgeError):
            return error
        cause: Any = getattr(error, "orig", None) or error
        cause = getattr(cause, "__cause__", None) or cause
        location = self._server.address.location
        if (
            error_mapping.code_of(cause) in _WRONG_DATABASE
            or error_mapping.code_of(error) in _WRONG_DATABASE
        ):
            return BadOption(f"tx= is connected to another database than {location}: {_SUPPORTED}")
        # Only the user's commit makes the jobs visible: a failed statement had no effect.
        return error_mapping.translated(cause, location=location, may_have_committed=False)


def _origin(transaction: object) -> tuple[str, str]:
    kind = type(transaction)
    return kind.__module__.partition(".")[0], kind.__name__


def _has(given: Any, *names: str) -> bool:
    return all(hasattr(given, name) for name in names)


def _no_transaction(name: str, cure: str) -> str:
    return f"tx={name} has no open transaction, so the jobs could not be part of one: {cure}"


def _check_psycopg(given: Any) -> None:
    if given.autocommit and given.info.transaction_status.name == "IDLE":
        raise BadOption(
            _no_transaction(type(given).__name__, "open one with connection.transaction()")
        )


def _psycopg(given: Any, query: str, values: tuple[Any, ...]) -> Rows:
    # The connection may have another row factory: this cursor reads plain tuples.
    plain = import_module("psycopg.rows").tuple_row
    with given.cursor(row_factory=plain) as cursor:
        return cursor.execute(query, values).fetchall()


async def _apsycopg(given: Any, query: str, values: tuple[Any, ...]) -> Rows:
    plain = import_module("psycopg.rows").tuple_row
    async with given.cursor(row_factory=plain) as cursor:
        await cursor.execute(query, values)
        return await cursor.fetchall()


async def _asqlalchemy(given: Any, query: Any, values: tuple[Any, ...]) -> Rows:
    return (await given.execute(query, _named(values))).fetchall()


def _dialect(given: Any) -> str:
    bind = given.get_bind() if hasattr(given, "get_bind") else given
    return bind.dialect.name


def _named(values: tuple[Any, ...]) -> dict[str, Any]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}
