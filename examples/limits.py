"""Limits over all workers: jobs at once per key, starts per second, calls of an API.
Run: python examples/limits.py
"""

import asyncio
import time
from collections import Counter

from forge_jobs import Context, Forge

forge = Forge()
forge.rate_limit("geo-api", "2/s", burst=1)  # permits for ctx.rate_limit.acquire
running: Counter[str] = Counter()
peak: Counter[str] = Counter()
starts: list[float] = []


@forge.task(queue="limits", concurrency=2, per="args.host")  # at most 2 at once for each host
async def fetch(host: str, page: int) -> None:
    for name in (host, "total"):
        running[name] += 1
        peak[name] = max(peak[name], running[name])
    await asyncio.sleep(0.1)
    running.subtract([host, "total"])


@forge.task(queue="limits", rate="4/s")  # starts per second; one second's worth may come at once
async def send_text(number: int) -> None:
    starts.append(time.monotonic())


@forge.task(queue="limits", scopes=["geo-api"])
async def locate(city: str, ctx: Context) -> None:
    # With no permit left this raises Throttled: the job goes back, keeps its attempts, takes no
    # slot, and starts again when there is a permit.
    await ctx.rate_limit.acquire("geo-api")
    starts.append(time.monotonic())


async def main() -> None:
    async with forge.worker(queues=["limits:20"]):  # 20 slots: more than the limits allow
        pages = [(host, page) for host in ("a.example", "b.example") for page in range(6)]
        for job in await fetch.aenqueue_many(pages):
            await job.aresult(timeout=30)
        print("most at once:", dict(sorted(peak.items())))

        for job in await send_text.aenqueue_many([(number,) for number in range(9)]):
            await job.aresult(timeout=30)
        print(f"9 texts within {starts[-1] - starts[0]:.1f} s")

        starts.clear()
        located = await locate.aenqueue_many([("Oslo",), ("Rome",), ("Lima",), ("Bonn",)])
        for job in located:
            await job.aresult(timeout=30)
        spent = {(await job.arefresh()).attempts for job in located}
        print(f"4 cities within {starts[-1] - starts[0]:.1f} s, attempts of each: {spent}")


if __name__ == "__main__":
    asyncio.run(main())
