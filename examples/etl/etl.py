"""A nightly pipeline from CSV files to a database. Run: python examples/etl/etl.py

Every file is a step: after a crash or a failure the pipeline goes on with the files that are left.
"""

import asyncio
import csv
import sqlite3
from contextlib import closing
from pathlib import Path

from forge_jobs import Context, Forge, Retry

forge = Forge()
SOURCE, TARGET = Path("incoming"), "warehouse.db"


def files_of(day: str) -> list[str]:
    return sorted(path.name for path in SOURCE.glob(f"{day}-*.csv"))


def warehouse() -> sqlite3.Connection:
    connection = sqlite3.connect(TARGET, timeout=10)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS sales (file TEXT, line INTEGER, product TEXT, cents INTEGER,"
        " PRIMARY KEY (file, line))"
    )
    return connection


def load(name: str) -> int:
    """Repeatable: a file that is loaded twice has its rows once."""
    with (SOURCE / name).open(newline="") as file:
        rows = [
            (name, number, row["product"].strip().lower(), round(float(row["price"]) * 100))
            for number, row in enumerate(csv.DictReader(file), start=1)
        ]
    with closing(warehouse()) as connection, connection:
        connection.executemany("INSERT OR REPLACE INTO sales VALUES (?, ?, ?, ?)", rows)
    return len(rows)


def totals() -> dict[str, int]:
    with closing(warehouse()) as connection:
        return dict(
            connection.execute("SELECT product, sum(cents) FROM sales GROUP BY 1 ORDER BY 1")
        )


@forge.task(queue="etl", timeout="2h", max_attempts=3, retry=Retry(base="300ms", max="10m"))
def nightly(day: str, ctx: Context) -> dict[str, int]:
    names = ctx.step_sync("list", files_of, day)
    rows = 0
    for number, name in enumerate(names, start=1):
        rows += ctx.step_sync.using(key=name)("load", load, name)
        ctx.progress(number / len(names), f"{rows} rows")
    return ctx.step_sync("totals", totals)


async def main() -> None:
    SOURCE.mkdir(exist_ok=True)
    (SOURCE / "2026-03-30-north.csv").write_text("product,price\nPen,1.50\nInk,4.00\n")
    (SOURCE / "2026-03-30-south.csv").write_text("product,price\npen ,1.50\nPad,broken\n")
    job = await nightly.aenqueue("2026-03-30")
    async with forge.worker(["etl"]):
        while (await job.arefresh()).status != "failed":
            await asyncio.sleep(0.05)
        print("failed:", job.error)
        (SOURCE / "2026-03-30-south.csv").write_text("product,price\npen ,1.50\nPad,2.25\n")
        print(await job.aresult(timeout=30))
    print([step.name for step in job.steps()], "in", job.refresh().attempts, "attempts")


if __name__ == "__main__":
    asyncio.run(main())
