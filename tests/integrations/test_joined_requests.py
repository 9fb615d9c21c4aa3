"""``forge.joined`` in dependencies of FastAPI: which of them reach the endpoint."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import sqlalchemy
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from forge_jobs import Forge, Refused, Task
from forge_jobs.integrations.fastapi import inject, lifespan


class Shop:
    """An application on one SQLite file, with a task."""

    def __init__(self, folder: Path) -> None:
        self.forge = Forge(f"sqlite:///{folder}/shop.db")
        self.engine = sqlalchemy.create_engine(f"sqlite:///{folder}/shop.db")
        self.awaited = create_async_engine(f"sqlite+aiosqlite:///{folder}/shop.db")

        @self.forge.task(queue="mail")
        def receipt(item: str) -> None: ...

        self.receipt: Task[..., None] = receipt
        self.app = FastAPI(lifespan=lifespan(self.forge, worker=False))

    def place(self, client: TestClient, item: str) -> int:
        return client.post(f"/orders/{item}").status_code

    def stored(self) -> list[str]:
        return [job.payload["item"] for job in self.forge.jobs(kind="receipt")]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.engine.dispose()
    made.forge.close()


def sync_endpoint(shop: Shop, get_session: Callable[[], Any]) -> None:
    @shop.app.post("/orders/{item}")
    def post_order(item: str, session: Annotated[Session, Depends(get_session)]) -> None:
        shop.receipt.enqueue(item)
        if item == "yacht":
            raise HTTPException(402)
        session.commit()


def test_an_awaited_session_and_endpoint(shop: Shop) -> None:
    async def get_session() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(shop.awaited) as session, shop.forge.joined(session):
            yield session

    @shop.app.post("/orders/{item}")
    async def post_order(item: str, session: Annotated[AsyncSession, Depends(get_session)]) -> None:
        await shop.receipt.aenqueue(item)
        if item == "yacht":
            raise HTTPException(402)
        await session.commit()

    with TestClient(shop.app) as client:
        assert [shop.place(client, item) for item in ("book", "yacht")] == [200, 402]
        client.portal.call(shop.awaited.dispose)  # pyright: ignore[reportOptionalMemberAccess]
    assert shop.stored() == ["book"]


def test_an_awaited_dependency_reaches_a_plain_endpoint(shop: Shop) -> None:
    async def get_session() -> AsyncGenerator[Session]:
        with Session(shop.engine) as session, shop.forge.joined(session):
            yield session

    sync_endpoint(shop, get_session)
    with TestClient(shop.app) as client:
        assert [shop.place(client, item) for item in ("book", "yacht")] == [200, 402]
    assert shop.stored() == ["book"]


def test_a_plain_dependency_says_that_it_joined_nothing(shop: Shop) -> None:
    def get_session() -> Generator[Session]:
        with Session(shop.engine) as session, shop.forge.joined(session):
            yield session

    sync_endpoint(shop, get_session)
    with (
        TestClient(shop.app) as client,
        pytest.raises(Refused, match="in an `async def` dependency"),
    ):
        shop.place(client, "book")


async def test_a_task_joins_by_the_same_dependency(shop: Shop) -> None:
    async def get_session() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(shop.awaited) as session, shop.forge.joined(session):
            yield session

    @shop.forge.task(queue="mail", max_attempts=1)
    @inject
    async def order(item: str, session: Annotated[AsyncSession, Depends(get_session)]) -> None:
        await shop.receipt.aenqueue(item)
        if item == "yacht":
            raise ValueError("too expensive")
        await session.commit()

    for item in ("book", "yacht"):
        await order.aenqueue(item)
    await shop.forge.adrain()
    assert [job.payload["item"] async for job in shop.forge.jobs(kind="receipt")] == ["book"]
    await shop.awaited.dispose()
    await shop.forge.aclose()
