"""FastAPI with SQLAlchemy: orders and their jobs in one transaction, a session per request and job.
Run: uvicorn --app-dir examples/frameworks fastapi_app:app
Then: curl -X POST localhost:8000/orders/book, curl localhost:8000/orders/1, and see /login?team=ops
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from forge_jobs import Forge
from forge_jobs.integrations.fastapi import CurrentForge, inject, lifespan
from forge_jobs.web import Identity, Role, mission_control

forge = Forge("sqlite:///shop.db")  # the database of the application: jobs join its transactions
engine = create_async_engine("sqlite+aiosqlite:///shop.db")
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    packed: Mapped[bool] = mapped_column(default=False)


async def get_session() -> AsyncGenerator[AsyncSession]:
    """For endpoints and tasks alike; what they enqueue is stored with their commit."""
    async with sessions() as session, forge.joined(session):
        yield session


SessionDep = Annotated[AsyncSession, Depends(get_session)]


@forge.task(queue="orders")
@inject
async def pack(order: int, session: SessionDep) -> str:
    found = await session.get_one(Order, order)
    found.packed = True
    await session.commit()
    return f"{found.item} is packed"


@asynccontextmanager
async def database(app: FastAPI) -> AsyncGenerator[None]:
    """What the application needs from its start to its end; the worker runs inside."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


def who(request: Request) -> Identity | Response:
    """The application's own login decides who sees Mission Control."""
    team = request.cookies.get("team")
    if team is None:
        return RedirectResponse("/login", 303)
    return Identity(team, Role.OPERATOR if team == "ops" else Role.VIEWER)


# worker=False where `forge worker fastapi_app:forge` runs beside it
app = FastAPI(lifespan=lifespan(forge, queues=["orders:4"], app_lifespan=database))
app.mount("/jobs", mission_control(forge, auth=who))


@app.get("/login")
async def login(team: str = "guests") -> Response:
    answer = RedirectResponse("/jobs/", 303)
    answer.set_cookie("team", team, httponly=True, samesite="lax")
    return answer


@app.post("/orders/{item}", status_code=202)
async def place(item: str, session: SessionDep) -> dict[str, int | str]:
    order = Order(item=item)
    session.add(order)
    await session.flush()
    job = await pack.aenqueue(order.id)
    if item == "yacht":
        raise HTTPException(402, "too expensive")  # no commit: neither order nor job
    await session.commit()
    return {"order": order.id, "job": job.id}


@app.get("/orders/{number}")
async def show(number: int, session: SessionDep) -> dict[str, str | bool]:
    order = await session.get(Order, number)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"item": order.item, "packed": order.packed}


@app.get("/results/{job}")
async def result(job: str, current: CurrentForge) -> str:
    return await current.job(job).aresult(timeout=5)
