"""A web shop: order, payment, stock, receipt. Run: python examples/web_shop/web_shop.py"""

import asyncio
import os
import sqlite3
from contextlib import closing

from forge_jobs import Context, Dead, DeadJob, Forge, Retry

FILE = os.environ.get("SHOP_FILE", "shop.db")
forge = Forge(f"sqlite:///{FILE}")  # the shop's own file: an order and its job are one commit
refusals = ["the bank does not answer"]  # the first call of the bank fails


def shop() -> sqlite3.Connection:
    connection = sqlite3.connect(FILE, timeout=10)
    connection.executescript(
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, state TEXT);"
        "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER);"
    )
    return connection


def place_order(item: str) -> int:
    """What the view of the web framework does."""
    with closing(shop()) as connection, connection:
        order = connection.execute("INSERT INTO orders (item, state) VALUES (?, 'new')", [item])
        assert order.lastrowid is not None
        fulfil.using(tx=connection).enqueue(order.lastrowid, item)
        return order.lastrowid


def charge(order: int) -> str:
    if refusals:
        raise ConnectionError(refusals.pop())
    return f"payment-{order}"


def take_from_stock(item: str) -> None:
    with closing(shop()) as connection, connection:
        taken = connection.execute(
            "UPDATE stock SET pieces = pieces - 1 WHERE item = ? AND pieces > 0", [item]
        )
        if taken.rowcount == 0:
            raise Dead(f"no {item} left")


def set_state(order: int, state: str) -> None:
    with closing(shop()) as connection, connection:
        connection.execute("UPDATE orders SET state = ? WHERE id = ?", [state, order])


@forge.task(queue="mail")
def send_mail(order: int, text: str) -> None:
    print(f"mail about order {order}: {text}")


@forge.task(queue="orders")
def refund(job: DeadJob) -> None:
    order = job.payload["order"]
    set_state(order, "refunded")
    send_mail.enqueue(order, f"money back: {job.error}")


@forge.task(queue="orders", retry=Retry(base="200ms"), on_dead=refund)
def fulfil(order: int, item: str, ctx: Context) -> str:
    payment = ctx.step_sync("charge", charge, order)  # stored: a retry does not charge again
    ctx.step_sync("stock", take_from_stock, item)
    set_state(order, "sent")
    ctx.on_done(send_mail, order, f"{item} is on its way")
    return payment


async def main() -> None:
    with closing(shop()) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO stock VALUES ('pen', 3), ('yacht', 0)")
    orders = [place_order("pen"), place_order("yacht")]
    async with forge.worker():
        while forge.jobs(status=["pending", "scheduled", "failed", "running"]).count():
            await asyncio.sleep(0.05)
    with closing(shop()) as connection:
        for order in orders:
            print(
                *connection.execute(
                    "SELECT item, state FROM orders WHERE id = ?", [order]
                ).fetchone()
            )


if __name__ == "__main__":
    asyncio.run(main())
