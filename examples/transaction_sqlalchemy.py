"""Jobs inside a SQLAlchemy transaction, without passing the session along, then with asyncio.
Run: python examples/transaction_sqlalchemy.py
"""

import asyncio
from contextlib import suppress

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from forge_jobs import Forge

forge = Forge("sqlite:///shop.db")  # the database of the application; Postgres works the same way


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@forge.task(queue="mail")
def send_receipt(item: str) -> None:
    print("receipt for", item)


def confirm(item: str) -> None:
    """Somewhere deep in the application: it has no session."""
    send_receipt.enqueue(item)


def place(session: Session, item: str) -> None:
    with session.begin(), forge.joined(session):
        session.add(Order(item=item))
        confirm(item)
        if item == "a yacht":
            raise ValueError("too expensive")  # rolls back: no order, no receipt
        with suppress(ValueError), session.begin_nested():
            confirm(f"gift wrap for {item}")
            raise ValueError("no paper left")  # back to the savepoint: the order stays


async def aplace(session: AsyncSession, item: str) -> None:
    async with session.begin(), forge.joined(session):
        session.add(Order(item=item))
        await send_receipt.aenqueue(item)


async def with_asyncio() -> None:
    engine = create_async_engine("sqlite+aiosqlite:///shop.db")
    async with AsyncSession(engine) as session:
        await aplace(session, "a lamp")
    await engine.dispose()
    await forge.adrain()
    await forge.aclose()


if __name__ == "__main__":
    engine = create_engine("sqlite:///shop.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        place(session, "a book")
        with suppress(ValueError):
            place(session, "a yacht")
    forge.drain().run()
    asyncio.run(with_asyncio())
    with Session(engine) as session:
        print("orders:", ", ".join(order.item for order in session.query(Order)))
    engine.dispose()
