"""Jobs that enqueue jobs: the next step, and a fan-out. Run: python examples/chaining.py"""

import asyncio

from forge_jobs import Context, Forge

forge = Forge()
mailed: asyncio.Queue[str] = asyncio.Queue()


@forge.task(queue="shop")
async def mail(to: str, text: str) -> None:
    await mailed.put(f"{to}: {text}")


@forge.task(queue="shop")
async def order(customer: str, items: list[str], ctx: Context) -> None:
    if not items:
        raise ValueError("nothing ordered")
    for item in items:
        # Stored now, whatever becomes of this job; the key makes it one job if this one runs again.
        once = reserve.using(dedupe_key=f"{ctx.job.id}:{item}")
        await ctx.aenqueue(once, item)
    # Stored in the transaction that finishes this job: never without it, never twice.
    ctx.on_done(mail, customer, f"thank you for {len(items)} items")


@forge.task(queue="shop")
async def reserve(item: str, ctx: Context) -> None:
    ctx.on_done(mail.using(priority=10), "warehouse", f"pack {item}")


async def main() -> None:
    async with forge.worker(queues=["shop"]):
        await order.aenqueue("Ada", ["pen", "ink"])
        for line in sorted([await mailed.get() for _ in range(3)]):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
