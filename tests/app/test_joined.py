"""``with forge.joined(session):`` on every store: what is enqueued in it needs no ``tx=``."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from forge_jobs import BadOption, Context, Forge, Refused, testing
from forge_jobs.backends.postgres.connection import address


class Shop:
    """An application whose engine leads to the database of its jobs."""

    def __init__(self, url: str, folder: Path) -> None:
        self.forge = Forge(url)
        if url.startswith("postgresql:"):
            plain = address.parse(url).dsn
            self.sync = plain.replace("postgresql:", "postgresql+psycopg:")
            self.awaited = plain.replace("postgresql:", "postgresql+asyncpg:")
        else:
            file = url.removeprefix("sqlite:///") if url != "memory://" else f"{folder}/app.db"
            self.sync, self.awaited = f"sqlite:///{file}", f"sqlite+aiosqlite:///{file}"

        @self.forge.task(queue="mail")
        def receipt(order: str) -> str:
            return order

        self.receipt = receipt

    def stored(self) -> list[str]:
        return sorted(job.payload["order"] for job in self.forge.jobs(kind="receipt"))


@pytest.fixture
def shop(any_url: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(any_url, tmp_path)
    yield made
    made.forge.close()


@pytest.fixture
def session(shop: Shop) -> Iterator[Session]:
    engine = sqlalchemy.create_engine(shop.sync)
    with Session(engine) as made:
        yield made
    engine.dispose()


@pytest.fixture
async def asession(shop: Shop) -> AsyncIterator[AsyncSession]:
    engine = create_async_engine(shop.awaited)
    async with AsyncSession(engine) as made:
        yield made
    await engine.dispose()


def test_jobs_of_the_block_follow_the_session(shop: Shop, session: Session) -> None:
    shop.forge.ready()  # SQLite could not be opened to look while the transaction is open
    with shop.forge.joined(session) as given:
        assert given is session
        shop.receipt.enqueue("bread")
        shop.forge.enqueue("receipt", {"order": "wine"})
        shop.receipt.enqueue_many([("salt",)])
        assert shop.stored() == []
        session.commit()
        assert shop.stored() == ["bread", "salt", "wine"]
        shop.receipt.enqueue("oil")
        session.rollback()
    shop.receipt.enqueue("outside")
    assert shop.stored() == ["bread", "outside", "salt", "wine"]


def test_an_error_that_rolls_back_leaves_no_job(shop: Shop, session: Session) -> None:
    with suppress(ZeroDivisionError), session.begin(), shop.forge.joined(session):
        shop.receipt.enqueue("bread")
        raise ZeroDivisionError
    shop.receipt.enqueue("outside")
    assert shop.stored() == ["outside"]


def test_savepoints_hold(shop: Shop, session: Session) -> None:
    with session.begin(), shop.forge.joined(session):
        shop.receipt.enqueue("bread")
        with session.begin_nested():
            shop.receipt.enqueue("wine")
        with suppress(ZeroDivisionError), session.begin_nested():
            shop.receipt.enqueue("oil")
            raise ZeroDivisionError
    assert shop.stored() == ["bread", "wine"]


async def test_an_awaited_session(shop: Shop, asession: AsyncSession) -> None:
    async with shop.forge.joined(asession):
        await shop.receipt.aenqueue("bread")
        await shop.forge.aenqueue("receipt", {"order": "wine"})
        await shop.receipt.aenqueue_many([("salt",)])
        await asession.commit()
        await shop.receipt.aenqueue("oil")
        await asession.rollback()
    with suppress(ZeroDivisionError), shop.forge.joined(asession):
        async with asession.begin():
            await shop.receipt.aenqueue("milk")
            async with asession.begin_nested():
                await shop.receipt.aenqueue("rice")
            raise ZeroDivisionError
    assert await asyncio.to_thread(shop.stored) == ["bread", "salt", "wine"]


async def test_an_awaited_session_cannot_be_used_by_a_synchronous_call(
    shop: Shop, asession: AsyncSession
) -> None:
    with shop.forge.joined(asession), pytest.raises(BadOption, match="use aenqueue"):
        shop.receipt.enqueue("bread")


def test_events_are_part_of_it(shop: Shop, session: Session) -> None:
    with shop.forge.joined(session):
        shop.forge.send("paid", dedupe_key="dropped")
        session.rollback()
        shop.forge.send("paid", dedupe_key="kept")
        session.commit()
    assert not shop.forge.send("paid", dedupe_key="dropped").duplicate
    assert shop.forge.send("paid", dedupe_key="kept").duplicate


async def test_a_handler_joins_its_own_session(shop: Shop) -> None:
    """``ctx.enqueue`` of a worker goes another way than ``task.enqueue``; both are joined."""
    engine = sqlalchemy.create_engine(shop.sync)

    @shop.forge.task(queue="mail")
    def order(ctx: Context, name: str) -> None:
        with Session(engine) as session, shop.forge.joined(session):
            ctx.enqueue(shop.receipt, name)
            shop.receipt.enqueue(name)
            if name == "sold out":
                session.rollback()
            session.commit()

    async with shop.forge.worker(["mail"]):
        for name in ("sold out", "bread"):
            job = await order.aenqueue(name)
            await job.aresult(timeout=20)
    assert await asyncio.to_thread(shop.stored) == ["bread", "bread"]
    engine.dispose()


async def test_a_worker_hears_of_the_commit(shop: Shop, asession: AsyncSession) -> None:
    async with shop.forge.worker(["mail"]):
        with shop.forge.joined(asession):
            job = await shop.receipt.aenqueue("bread")
        await asession.commit()
        assert await job.aresult(timeout=20) == "bread"


def test_blocks_nest_and_each_forge_has_its_own(shop: Shop, session: Session) -> None:
    other = Forge("memory://")

    @other.task
    def note(text: str) -> None: ...

    with testing.Transaction() as inner, shop.forge.joined(session), other.joined(inner):
        shop.receipt.enqueue("bread")
        note.enqueue("hidden")
        assert other.jobs().count() == 0
        session.rollback()
    assert other.jobs().count() == 1
    assert shop.stored() == []
    other.close()


def test_an_explicit_transaction_comes_first() -> None:
    forge = Forge("memory://")

    @forge.task
    def note(text: str) -> None: ...

    dropped, kept = testing.Transaction(), testing.Transaction()
    with suppress(ZeroDivisionError), dropped, forge.joined(dropped):
        with kept:
            note.using(tx=kept).enqueue("kept")
        note.enqueue("dropped")
        raise ZeroDivisionError
    assert [job.payload["text"] for job in forge.jobs()] == ["kept"]
    forge.close()


async def test_a_task_that_outlives_the_block_is_on_its_own() -> None:
    forge = Forge("memory://")

    @forge.task
    def note(text: str) -> None: ...

    left = asyncio.Event()

    async def later() -> None:
        await left.wait()
        await note.aenqueue("after the block")

    with testing.Transaction() as tx, forge.joined(tx):
        waiting = asyncio.create_task(later())
        await asyncio.sleep(0)
    left.set()
    await waiting
    assert [job.payload["text"] async for job in forge.jobs()] == ["after the block"]
    await forge.aclose()


@pytest.mark.parametrize("way", ["drain", "worker"])
async def test_handlers_that_run_inside_of_a_block_are_on_their_own(way: str) -> None:
    """A rollback of the caller must not take along what a job has enqueued."""
    forge = Forge("memory://")

    @forge.task(queue="mail")
    async def note(text: str) -> None: ...

    @forge.task(queue="mail")
    async def order() -> None:
        await note.aenqueue("of the order")

    job = await order.aenqueue()
    with suppress(ZeroDivisionError), testing.Transaction() as tx, forge.joined(tx):
        if way == "drain":
            await forge.adrain()
        else:
            async with forge.worker(["mail"]):
                await job.aresult(timeout=20)
        raise ZeroDivisionError
    assert await forge.jobs(kind="note").acount() == 1
    await forge.aclose()


def test_a_block_that_is_left_elsewhere_says_so(shop: Shop, session: Session) -> None:
    """As the plain `def` dependencies of FastAPI: enter and leave run in copies of the context."""
    block: Any = shop.forge.joined(session)
    copy_context().run(block.__enter__)
    shop.receipt.enqueue("not joined")
    with pytest.raises(Refused, match="an `async def` dependency"):
        copy_context().run(block.__exit__, None, None, None)


def test_no_transaction_is_refused() -> None:
    forge = Forge("memory://")
    with pytest.raises(BadOption, match="pass a connection or a session"):
        forge.joined(None)
    with forge.joined("app.db"), pytest.raises(BadOption, match="tx=str cannot be joined"):
        forge.enqueue("anything")
    forge.close()


def test_inline_mode_cannot_run_what_is_not_committed(shop: Shop, session: Session) -> None:
    with (
        testing.inline(shop.forge),
        shop.forge.joined(session),
        pytest.raises(Refused, match="after the commit"),
    ):
        shop.receipt.enqueue("bread")
