"""Recognises the connections and sessions that users pass as ``tx=``.

None of their libraries is imported here: an object is known by the classes it derives from.
"""

from typing import TYPE_CHECKING, Any, Final

from forge_jobs.core.errors import BadOption

if TYPE_CHECKING:
    import sqlite3

_ASYNC_SQLALCHEMY: Final = frozenset({"AsyncConnection", "AsyncSession", "async_scoped_session"})


def library(transaction: object) -> str:
    """The library of a connection: of the first of its classes that is neither the user's nor
    built in."""
    known = ("sqlite3", "sqlalchemy", "aiosqlite", "psycopg", "psycopg2", "asyncpg")
    for kind in type(transaction).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in known:
            return root
    return ""


def is_async_sqlalchemy(transaction: object) -> bool:
    """Whether it is a connection or session of SQLAlchemy that must be awaited."""
    return library(transaction) == "sqlalchemy" and any(
        kind.__name__ in _ASYNC_SQLALCHEMY for kind in type(transaction).__mro__
    )


def is_async(transaction: object) -> bool:
    """Whether its calls must be awaited."""
    found = library(transaction)
    if found == "psycopg":
        return type(transaction).__name__.startswith("Async")
    return found in ("aiosqlite", "asyncpg") or is_async_sqlalchemy(transaction)


def sqlalchemy_connection(transaction: object) -> Any:
    """The synchronous SQLAlchemy connection of a connection or session, with a transaction begun
    as a statement would begin it."""
    given: Any = transaction
    if hasattr(given, "get_bind"):
        return given.connection()
    if not hasattr(given, "exec_driver_sql"):
        raise refused(transaction, "pass a connection or a session")
    if not given.in_transaction():
        given.exec_driver_sql("SELECT 1")
    return given


async def async_sqlalchemy_connection(transaction: object) -> Any:
    """The asynchronous SQLAlchemy connection of a connection or session, likewise."""
    given: Any = transaction
    if hasattr(given, "get_bind"):
        return await given.connection()
    if not given.in_transaction():
        await given.exec_driver_sql("SELECT 1")
    return given


def sqlite_connection(transaction: object, where: str) -> "sqlite3.Connection":
    """The sqlite3 connection below a synchronous ``tx=``. BadOption if there is none."""
    # Imported here: programs on other stores do not load it.
    import sqlite3

    found: object = transaction
    if is_async(transaction):
        raise must_be_awaited(transaction)
    if library(transaction) == "sqlalchemy":
        found = _driver_connection(sqlalchemy_connection(transaction), where)
    if not isinstance(found, sqlite3.Connection):
        raise refused(transaction, _supported(where))
    return found


async def async_sqlite_connection(transaction: object, where: str) -> Any:
    """The aiosqlite connection below an asynchronous ``tx=``. BadOption if there is none."""
    found: Any = transaction
    if library(transaction) == "sqlalchemy":
        connection = await async_sqlalchemy_connection(transaction)
        _check_dialect(connection, where)
        found = (await connection.get_raw_connection()).driver_connection
    if library(found) != "aiosqlite":
        raise refused(transaction, _supported(where))
    return found


def must_be_awaited(transaction: object) -> BadOption:
    """The error for an asynchronous connection in a synchronous call."""
    return BadOption(f"tx={type(transaction).__name__} is asynchronous: use aenqueue with it")


def refused(transaction: object, instead: str) -> BadOption:
    """The error for an object that cannot be joined."""
    if type(transaction).__module__.partition(".")[0] == "django":
        instead = (
            "with Django pass the driver's own connection, connection.connection, inside "
            "transaction.atomic()"
        )
    return BadOption(f"tx={type(transaction).__name__} cannot be joined: {instead}")


def _driver_connection(connection: Any, where: str) -> object:
    _check_dialect(connection, where)
    return connection.connection.driver_connection


def _check_dialect(connection: Any, where: str) -> None:
    name = connection.dialect.name
    if name != "sqlite":
        raise BadOption(f"tx= is connected to {name}, but the jobs are in the SQLite file {where}")


def _supported(where: str) -> str:
    return (
        f"the jobs are in the SQLite file {where}, so pass a connection to that file of sqlite3 or "
        "aiosqlite, or a connection or session of SQLAlchemy"
    )
