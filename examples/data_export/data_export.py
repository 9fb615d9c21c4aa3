"""An export that a user starts, watches, stops and fetches.

Run: python examples/data_export/data_export.py
"""

import asyncio
import csv
from pathlib import Path

from forge_jobs import Context, Forge

forge = Forge()
FOLDER = Path("exports")


@forge.task(queue="exports", timeout="10m")
async def export(user: str, rows: int, ctx: Context) -> str:
    FOLDER.mkdir(exist_ok=True)
    target = FOLDER / f"{ctx.job.id}.csv"
    unfinished = target.with_suffix(".part")
    try:
        with unfinished.open("w", newline="") as file:
            writer = csv.writer(file)
            for number in range(rows):
                writer.writerow([user, number])
                if number % 1_000 == 999:
                    ctx.progress((number + 1) / rows, f"{number + 1} rows")
                    await asyncio.sleep(0.02)  # where a cancel takes effect
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    remove.using(delay="24h", dedupe_key=target.name).enqueue(target.name)
    return target.name


@forge.task(queue="exports")
def remove(name: str) -> None:
    (FOLDER / name).unlink(missing_ok=True)


async def main() -> None:
    async with forge.worker(["exports:2"]):
        # One running export for each user: a second click returns the first job.
        chosen = export.using(dedupe_key="ada")
        job, click = await chosen.aenqueue("ada", 3_000), await chosen.aenqueue("ada", 3_000)
        print("second click is the same job:", click.id == job.id)
        name = await job.aresult(timeout=30)
        print("rows:", len((FOLDER / name).read_text().splitlines()))
        endless = await export.aenqueue("bob", 100_000_000)
        while (await endless.arefresh()).progress is None:
            await asyncio.sleep(0.02)
        await endless.acancel()
        while (await endless.arefresh()).status != "cancelled":
            await asyncio.sleep(0.02)
        print("stopped:", endless.status.value, "- files:", len(list(FOLDER.iterdir())))


if __name__ == "__main__":
    asyncio.run(main())
