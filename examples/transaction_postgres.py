"""A job in your own Postgres transaction (outbox): the order and its job are stored together, or
not at all. Run: FORGE_URL=postgresql://user@host/db python examples/transaction_postgres.py
"""

import asyncio

import psycopg  # connections of asyncpg, and connections and sessions of SQLAlchemy work, too

from forge_jobs import Forge, Job

forge = Forge()


@forge.task(queue="receipts")
async def send_receipt(item: str) -> str:
    return f"receipt for a {item}"


Database = psycopg.AsyncConnection[tuple[str]]


async def buy(database: Database, item: str, price: int) -> Job[str]:
    async with database.transaction():  # commits at the end, rolls back on an exception
        await database.execute("INSERT INTO orders VALUES (%s, %s)", (item, price))
        job = await send_receipt.using(tx=database).aenqueue(item)
        if price > 100:
            raise PermissionError("too expensive")
    return job


async def main() -> None:
    if not forge.url.startswith("postgres"):
        raise SystemExit("set FORGE_URL to the address of a Postgres database")
    await forge.aready()  # creates the tables of Forge Jobs, in a schema of their own
    async with (
        await psycopg.AsyncConnection.connect(forge.url, autocommit=True) as database,
        forge.worker(queues=["receipts"]),
    ):
        await database.execute("CREATE TEMPORARY TABLE orders (item TEXT, price INTEGER)")
        for item, price in (("book", 20), ("yacht", 900), ("pen", 2)):
            try:
                print(await (await buy(database, item, price)).aresult(timeout=10))
            except PermissionError as error:
                print(f"no {item}: {error}")
        orders = await database.execute("SELECT item FROM orders")
        print("orders:", *(item for (item,) in await orders.fetchall()))


if __name__ == "__main__":
    asyncio.run(main())
