"""Long work on the processor, with progress, that a deploy may interrupt.

Run: python examples/number_crunching/primes.py
"""

import asyncio
from pathlib import Path

from forge_jobs import Context, Forge, Snooze

forge = Forge()
PART = 2_000


def count_primes(start: int, end: int) -> int:
    return sum(
        1
        for one in range(max(2, start), end)
        if all(one % by for by in range(2, int(one**0.5) + 1))
    )


@forge.task(queue="numbers", cpu=True, timeout="1h", soft_timeout="50m", max_attempts=3)
def primes_below(limit: int, ctx: Context) -> int:
    """In a child process; a file has what was counted, so the next run goes on from there."""
    saved = Path(f"primes-{ctx.job.id}.txt")
    start, found = map(int, saved.read_text().split()) if saved.exists() else (0, 0)
    while start < limit:
        end = min(start + PART, limit)
        found += count_primes(start, end)
        start = end
        saved.write_text(f"{start} {found}")
        ctx.progress(start / limit, f"{found} below {start}")
        ctx.raise_if_cancelled()
        if ctx.soft_timeout_reached:
            raise Snooze("200ms")  # others get the slot; no attempt is spent
    saved.unlink()
    return found


async def main() -> None:
    async with forge.worker(["numbers:2"]):
        job = await primes_below.aenqueue(10_000)
        print("primes:", await job.aresult(timeout=60))
        limited = primes_below.using(soft_timeout="1ms")
        sliced = await limited.aenqueue(5_000)  # each run does one part, then lets others run
        print("in slices:", await sliced.aresult(timeout=60))
        endless = await primes_below.aenqueue(2_000_000_000)
        while (await endless.arefresh()).progress is None:
            await asyncio.sleep(0.05)
        await endless.acancel()
        while (await endless.arefresh()).status != "cancelled":
            await asyncio.sleep(0.05)
        print("endless:", endless.status.value)


if __name__ == "__main__":
    asyncio.run(main())
