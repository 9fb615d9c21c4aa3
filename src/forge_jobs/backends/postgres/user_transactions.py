"""``tx=``: enqueues jobs, sends events and stores steps inside a user's own transaction, through
the user's own connection.

Supported are connections of asyncpg, psycopg and psycopg2, and connections and sessions of
SQLAlchemy. None of these libraries is imported unless one of its objects is passed in. Asynchronous
connections need ``aenqueue_in``.
"""

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from forge_jobs.core.errors import BadOption, Conflict, ForgeError, LeaseLost
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite

from . import rows
from .connection import error_mapping
from .connection.server import Server
from .events import answers as event_answers
from .events import plain as plain_event

LIBRARIES: Final = ("asyncpg", "psycopg", "psycopg2", "sqlalchemy")
_WRONG_DATABASE: Final = frozenset({"FJ001", "42883", "3F000", "42P01"})
_LEASE_LOST: Final = "FJ002"
_STEP_TAKEN: Final = "FJ003"
_COLUMNS: Final = "e_ordinal, e_key, e_at, e_status, e_duplicate"
_SUPPORTED: Final = (
    "pass a connection of asyncpg, psycopg or psycopg2, or a connection or session of SQLAlchemy, "
    "to the database that holds the jobs"
)

Rows = Sequence[Any]


class _Call(NamedTuple):
    """A call of a server function: its result columns, its name, the types and values of its
    arguments."""

    columns: str
    function: str
    types: tuple[str, ...]
    values: tuple[Any, ...]

    def query(self, placeholder: str) -> str:
        """The statement, with placeholders of a driver."""
        arguments = ", ".join(
            f"CAST({placeholder.format(n)} AS {kind})" for n, kind in enumerate(self.types, 1)
        )
        return f"SELECT {self.columns} FROM {self.function}({arguments})"  # noqa: S608 - our own


class UserTransactions:
    """Enqueues jobs, sends events and stores steps through connections of the user."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.tag = 0

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue through a synchronous connection."""
        return self._replies(self._run(transaction, self._enqueue_call(jobs)))

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue through an asynchronous connection, or a synchronous one."""
        return self._replies(await self._arun(transaction, self._enqueue_call(jobs)))

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        """Send events through a synchronous connection."""
        found = self._run(transaction, self._send_call(events))
        return event_answers(len(events), found[0][0])

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        """Send events through an asynchronous connection, or a synchronous one."""
        found = await self._arun(transaction, self._send_call(events))
        return event_answers(len(events), found[0][0])

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        """Store a step through a synchronous connection."""
        self._run(transaction, self._step_call(owner, step))

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        """Store a step through an asynchronous connection, or a synchronous one."""
        await self._arun(transaction, self._step_call(owner, step))

    def _run(self, transaction: object, call: _Call) -> Rows:
        run = self._sync_runner(transaction, call)
        try:
            return run()
        except Exception as error:
            raise self._translated(error) from error

    async def _arun(self, transaction: object, call: _Call) -> Rows:
        run = self._async_runner(transaction, call)
        if run is None:
            return self._run(transaction, call)
        try:
            return await run()
        except Exception as error:
            raise self._translated(error) from error

    def _sync_runner(self, transaction: object, call: _Call) -> Callable[[], Rows]:
        library, name = _origin(transaction)
        if self._async_runner(transaction, call) is not None:
            raise BadOption(f"tx={name} is asynchronous: use aenqueue with it")
        given: Any = transaction
        if library == "psycopg" and _has(given, "cursor", "autocommit"):
            _check_psycopg(given)
            return lambda: _psycopg(given, call.query("%s"), call.values)
        if library == "psycopg2" and _has(given, "cursor", "autocommit"):
            _check_psycopg2(given)
            return lambda: _psycopg2(given, call.query("%s"), call.values)
        if library == "sqlalchemy" and _has(given, "execute", "connection"):
            query = _sqlalchemy_query(given, call)
            return lambda: given.execute(query, _named(call.values)).fetchall()
        raise BadOption(f"tx={name} cannot be joined: {_SUPPORTED}")

    def _async_runner(
        self, transaction: object, call: _Call
    ) -> Callable[[], Awaitable[Rows]] | None:
        library, name = _origin(transaction)
        given: Any = transaction
        if library == "asyncpg" and _has(given, "fetch", "is_in_transaction"):
            if not given.is_in_transaction():
                raise BadOption(_no_transaction(name, "open one with connection.transaction()"))
            return lambda: given.fetch(call.query("${}"), *call.values)
        if library == "psycopg" and name.startswith("Async") and _has(given, "cursor"):
            _check_psycopg(given)
            return lambda: _apsycopg(given, call.query("%s"), call.values)
        if library == "sqlalchemy" and name in ("AsyncConnection", "AsyncSession"):
            return lambda: _asqlalchemy(given, _sqlalchemy_query(given, call), call.values)
        return None

    def _call(self, columns: str, function: str, types: str, *values: Any) -> _Call:
        name = f"{self._server.address.schema}.{function}"
        return _Call(columns, name, tuple(types.split()), values)

    def _enqueue_call(self, jobs: Sequence[NewJob]) -> _Call:
        return self._call(
            _COLUMNS, "enqueue_json_v1", "bigint text text json",
            self._server.store_clock.bind(), str(self.tag), self._server.address.channel,
            rows.as_json([rows.plain(job) for job in jobs]),
        )  # fmt: skip

    def _send_call(self, events: Sequence[NewEvent]) -> _Call:
        return self._call(
            "e_duplicates", "send_json_v1", "bigint text text json",
            self._server.store_clock.bind(), str(self.tag), self._server.address.channel,
            rows.as_json([plain_event(event) for event in events]),
        )  # fmt: skip

    def _step_call(self, owner: int, step: StepWrite) -> _Call:
        return self._call(
            "1", "store_step_json_v1", "text bigint json",
            str(self.tag), owner, rows.as_json(_plain_step(step)),
        )  # fmt: skip

    def _replies(self, found: Rows) -> list[Enqueued]:
        return [rows.enqueued(row, self.tag) for row in sorted(found, key=lambda row: row[0])]

    def _translated(self, error: Exception) -> ForgeError:
        if isinstance(error, ForgeError):
            return error
        cause: Any = getattr(error, "orig", None) or error
        cause = getattr(cause, "__cause__", None) or cause
        location = self._server.address.location
        codes = {error_mapping.code_of(cause), error_mapping.code_of(error)}
        if _LEASE_LOST in codes:
            return LeaseLost("the claim is no longer current: the step was not stored")
        if _STEP_TAKEN in codes:
            return Conflict("a step of this name is stored already")
        if not codes.isdisjoint(_WRONG_DATABASE):
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


def _check_psycopg2(given: Any) -> None:
    if given.autocommit and given.info.transaction_status == 0:
        raise BadOption(
            _no_transaction(type(given).__name__, "set autocommit to False, or execute BEGIN")
        )


def _psycopg2(given: Any, query: str, values: tuple[Any, ...]) -> Rows:
    plain = import_module("psycopg2.extensions").cursor
    with given.cursor(cursor_factory=plain) as cursor:
        cursor.execute(query, values)
        return cursor.fetchall()


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


def _sqlalchemy_query(given: Any, call: _Call) -> Any:
    dialect = _dialect(given)
    if dialect != "postgresql":
        raise BadOption(f"tx= is connected to {dialect}, but the jobs are in Postgres")
    return import_module("sqlalchemy").text(call.query(":p{}"))


def _plain_step(step: StepWrite) -> dict[str, Any]:
    """A step for ``store_step_json_v1``."""
    return {
        "key": step.key,
        "epoch": step.epoch,
        "name": step.name,
        "kind": step.kind.value,
        "began_at": step.began_at,
        "ended_at": step.ended_at,
        "value": None if step.value is None else step.value.decode(),
        "fingerprint": step.fingerprint,
    }


def _dialect(given: Any) -> str:
    bind = given.get_bind() if hasattr(given, "get_bind") else given
    return bind.dialect.name


def _named(values: tuple[Any, ...]) -> dict[str, Any]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}
