"""A job in your own SQLite transaction (outbox): the order and its job are stored together, or not
at all. Run: python examples/transaction_sqlite.py
"""

import asyncio
import sqlite3

from forge_jobs import Forge, Job

forge = Forge("sqlite:///shop.db")  # the file that holds the application's tables


@forge.task(queue="receipts")
async def send_receipt(item: str) -> str:
    return f"receipt for a {item}"


def buy(database: sqlite3.Connection, item: str, price: int) -> Job[str]:
    with database:  # commits at the end, rolls back on an exception
        database.execute("INSERT INTO orders VALUES (?, ?)", (item, price))
        job = send_receipt.using(tx=database).enqueue(item)  # no worker sees it before the commit
        if price > 100:
            raise PermissionError("too expensive")
    return job


async def main() -> None:
    await forge.aready()  # creates the tables of Forge Jobs in the file
    database = sqlite3.connect("shop.db")
    database.execute("DROP TABLE IF EXISTS orders")
    database.execute("CREATE TABLE orders (item TEXT, price INTEGER)")
    async with forge.worker(queues=["receipts"]):
        for item, price in (("book", 20), ("yacht", 900), ("pen", 2)):
            try:
                print(await buy(database, item, price).aresult(timeout=10))
            except PermissionError as error:
                print(f"no {item}: {error}")
    print("orders:", *(item for (item,) in database.execute("SELECT item FROM orders")))
    database.close()


if __name__ == "__main__":
    asyncio.run(main())
