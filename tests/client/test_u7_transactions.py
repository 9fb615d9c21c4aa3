"""The same application code with ``tx=`` on memory, SQLite and Postgres."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from forge_jobs import BadOption, Forge, Unavailable
from forge_jobs.testing import Transaction


class Orders:
    """An application: it stores an order and enqueues a receipt in one transaction."""

    def __init__(self, url: str) -> None:
        self.forge = Forge(url)

        @self.forge.task(queue="mail")
        def receipt(order: str) -> None: ...

        self.receipt = receipt

    def place(self, session: Any, order: str) -> str:
        _insert(session, order)
        return self.receipt.using(tx=session).enqueue(order=order).id

    async def aplace(self, session: Any, order: str) -> str:
        await _ainsert(session, order)
        return (await self.receipt.using(tx=session).aenqueue(order=order)).id

    def jobs(self) -> int:
        return asyncio.run(self.ajobs())

    async def ajobs(self) -> int:
        await self.forge.aready()
        return sum(count.jobs for count in await self.forge.store.metrics.counts())


def _insert(session: Any, order: str) -> None:
    if isinstance(session, sqlite3.Connection):
        session.execute("INSERT INTO orders (name) VALUES (?)", (order,))
    else:
        session.execute(
            sqlalchemy.text("INSERT INTO orders (name) VALUES (:name)"), {"name": order}
        )


async def _ainsert(session: Any, order: str) -> None:
    if type(session).__module__.startswith("aiosqlite"):
        await session.execute("INSERT INTO orders (name) VALUES (?)", (order,))
    else:
        statement = sqlalchemy.text("INSERT INTO orders (name) VALUES (:name)")
        await session.execute(statement, {"name": order})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (name TEXT)")
        connection.commit()
    return path


@pytest.fixture(params=["memory", "sqlite"])
def orders(request: pytest.FixtureRequest, path: Path) -> Iterator[Orders]:
    """The application; nothing was opened before its first call."""
    made = Orders("memory://" if request.param == "memory" else f"sqlite:///{path}")
    yield made
    made.forge.close()


@pytest.fixture
def engine(path: Path) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(f"sqlite:///{path}")
    yield made
    made.dispose()


def test_u7_a_sqlalchemy_session(orders: Orders, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        orders.place(session, "bread")
        session.commit()
        orders.place(session, "wine")
        session.rollback()
        orders.place(session, "salt")
        session.commit()
    with suppress(ZeroDivisionError), Session(engine) as session, session.begin():
        orders.place(session, "oil")
        raise ZeroDivisionError
    assert orders.jobs() == 2
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.text("SELECT name FROM orders"))
        assert [name for (name,) in found] == ["bread", "salt"]


def test_u7_nothing_is_seen_before_the_commit(orders: Orders, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        orders.place(session, "bread")
        session.commit()
        assert orders.jobs() == 1
        job_id = orders.place(session, "wine")
        assert orders.jobs() == 1
        session.commit()
        assert orders.jobs() == 2
    assert orders.forge.job(job_id).refresh().status == "pending"


def test_u7_a_savepoint_that_is_rolled_back(orders: Orders, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        orders.place(session, "bread")
        with session.begin_nested():
            orders.place(session, "wine")
        with suppress(ZeroDivisionError), session.begin_nested():
            orders.place(session, "salt")
            raise ZeroDivisionError
        session.commit()
    assert orders.jobs() == 2


def test_u7_a_sqlalchemy_connection(orders: Orders, engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        orders.receipt.using(tx=connection).enqueue(order="first of all")
        connection.commit()
        orders.place(connection, "wine")
        connection.rollback()
    with engine.begin() as connection:
        orders.place(connection, "bread")
    assert orders.jobs() == 2


def test_u7_a_connection_in_autocommit_mode_is_refused(
    orders: Orders, engine: sqlalchemy.Engine
) -> None:
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(BadOption, match="autocommit mode"),
    ):
        orders.receipt.using(tx=connection).enqueue(order="bread")
    assert orders.jobs() == 0


def test_u7_a_session_closed_without_a_commit(orders: Orders, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        orders.place(session, "bread")
    assert orders.jobs() == 0


def test_u7_scoped_sessions_and_subclasses(orders: Orders, engine: sqlalchemy.Engine) -> None:
    class OwnSession(Session):
        pass

    scoped = scoped_session(sessionmaker(engine))
    orders.place(scoped, "bread")
    scoped.commit()
    scoped.remove()
    with OwnSession(engine) as session:
        orders.place(session, "wine")
        session.commit()
    assert orders.jobs() == 2


@pytest.fixture
async def async_engine(path: Path) -> AsyncIterator[Any]:
    pytest.importorskip("aiosqlite")
    made = create_async_engine(f"sqlite+aiosqlite:///{path}")
    yield made
    await made.dispose()


async def test_u7_an_asynchronous_session(orders: Orders, async_engine: Any) -> None:
    async with AsyncSession(async_engine) as session:
        await orders.aplace(session, "bread")
        await session.commit()
        await orders.aplace(session, "wine")
        await session.rollback()
        await orders.aplace(session, "salt")
        await session.commit()
        with pytest.raises(BadOption, match="AsyncSession is asynchronous: use aenqueue"):
            orders.receipt.using(tx=session).enqueue(order="oil")
    async with async_engine.begin() as connection:
        await orders.aplace(connection, "oil")
    async with async_engine.connect() as connection:
        await orders.receipt.using(tx=connection).aenqueue(order="first of all")
        await connection.commit()
    assert await orders.ajobs() == 4
    await orders.forge.aclose()


async def test_u7_an_aiosqlite_connection(path: Path) -> None:
    pytest.importorskip("aiosqlite")
    aiosqlite = import_module("aiosqlite")
    orders = Orders(f"sqlite:///{path}")
    async with aiosqlite.connect(path) as connection:
        await orders.aplace(connection, "bread")
        await connection.commit()
        await orders.aplace(connection, "wine")
        await connection.rollback()
        with pytest.raises(BadOption, match="use aenqueue"):
            orders.receipt.using(tx=connection).enqueue(order="oil")
    assert await orders.ajobs() == 1
    await orders.forge.aclose()


def test_u7_the_first_call_is_inside_a_write_transaction(path: Path) -> None:
    """Neither forge.ready() nor a derived path is needed: the tables are made in the transaction,
    and a rollback leaves none."""
    orders = Orders(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        orders.place(connection, "bread")
        connection.rollback()
        tables = connection.execute("SELECT name FROM sqlite_schema").fetchall()
        assert tables == [("orders",)]
        orders.place(connection, "wine")
        connection.commit()
    assert orders.jobs() == 1
    orders.receipt.enqueue(order="salt")
    assert orders.jobs() == 2
    orders.forge.close()


def test_u7_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    orders = Orders(f"sqlite:///{tmp_path}/new.db")
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        orders.receipt.using(tx=connection).enqueue(order="bread")
        connection.commit()
    assert orders.jobs() == 1
    orders.forge.close()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_u7_a_forgotten_tx_names_the_own_transaction(
    path: Path, journal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow: the call waits for about 10 s, because another thread may end the transaction."""
    orders = Orders(f"sqlite:///{path}")
    if journal == "wal":
        orders.forge.ready()
    with closing(sqlite3.connect(path)) as connection:
        _insert(connection, "bread")
        with pytest.raises(
            Unavailable, match=r"this process itself .* pass that connection as tx="
        ):
            orders.receipt.enqueue(order="bread")
    if journal == "wal":
        assert "a write waits: this process itself has a write transaction open" in caplog.text
    orders.forge.close()


def test_u7_a_session_of_another_database_is_refused(tmp_path: Path, path: Path) -> None:
    orders = Orders(f"sqlite:///{path}")
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")
    with Session(other) as session, pytest.raises(BadOption, match="but the jobs are in"):
        orders.receipt.using(tx=session).enqueue(order="bread")
    orders.forge.close()


def test_u7_a_transaction_object_on_memory() -> None:
    orders = Orders("memory://")
    with Transaction() as tx:
        handles = orders.receipt.using(tx=tx).enqueue_many([{"order": "bread"}, {"order": "wine"}])
        assert orders.jobs() == 0
    assert orders.jobs() == 2
    assert orders.forge.job(handles[0].id).refresh().status == "pending"
    with suppress(ZeroDivisionError), Transaction() as tx:
        orders.receipt.using(tx=tx).enqueue(order="salt")
        raise ZeroDivisionError
    assert orders.jobs() == 2


def test_u7_dedupe_keys_hold_on_memory(engine: sqlalchemy.Engine) -> None:
    orders = Orders("memory://")
    task = orders.receipt.using(dedupe_key="one")
    with Session(engine) as session:
        first = task.using(tx=session).enqueue(order="bread")
        again = task.using(tx=session).enqueue(order="bread")
        assert (first.id, first.duplicate, again.duplicate) == (again.id, False, True)
        session.rollback()
        task.using(tx=session).enqueue(order="bread")
        session.commit()
        assert task.using(tx=session).enqueue(order="bread").duplicate
    assert orders.jobs() == 1


def test_u7_a_silent_connection_on_memory_is_stored_at_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders = Orders("memory://")
    with closing(sqlite3.connect(path)) as connection:
        orders.place(connection, "bread")
        orders.place(connection, "wine")
        connection.rollback()
    assert orders.jobs() == 2
    told = [record.getMessage() for record in caplog.records if "rollback" in record.getMessage()]
    assert len(told) == 1
    assert "cannot see the end of a transaction of sqlite3" in told[0]


def test_u7_other_objects_are_refused_with_what_is_allowed(orders: Orders) -> None:
    with pytest.raises(BadOption, match=r"tx=object cannot be joined: .*SQLAlchemy"):
        orders.receipt.using(tx=object()).enqueue(order="bread")


def test_a_django_connection_is_refused_with_what_to_pass_instead(tmp_path: Path) -> None:
    from django.db import connection  # a proxy; it needs no settings to be refused

    orders = Orders(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(BadOption, match=r"connection\.connection, inside transaction\.atomic"):
        orders.receipt.using(tx=connection).enqueue(order="bread")
