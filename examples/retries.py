"""Retries with back-off, and a task for jobs that died. Run: python examples/retries.py"""

import asyncio

from forge_jobs import Context, DeadJob, Forge, JobFailed, Retry

forge = Forge()
tickets: asyncio.Queue[str] = asyncio.Queue()


@forge.task(queue="billing")
async def open_ticket(job: DeadJob) -> None:
    customer = job.payload["customer"]
    await tickets.put(f"ticket for {customer}: {job.error} ({job.attempts} attempts)")


@forge.task(
    queue="billing",
    max_attempts=3,
    # Waits 200 ms, then 400 ms; the default is 15 s, doubled up to 1 h. No retry on ValueError.
    retry=Retry(base="200ms", max="1m", jitter=0, never=(ValueError,)),
    on_dead=open_ticket,  # stored in the transaction in which a job becomes dead
)
async def charge(customer: str, ctx: Context) -> str:
    if customer == "Grace":
        raise ValueError("no card on file")
    if customer == "Linus" or ctx.job.attempts < 3:
        raise ConnectionError("the bank does not answer")
    return f"charged {customer} in attempt {ctx.job.attempts}"


async def main() -> None:
    async with forge.worker(queues=["billing"]):
        for customer in ("Ada", "Grace", "Linus"):
            job = await charge.aenqueue(customer)
            try:
                print(await job.aresult(timeout=30))
            except JobFailed as failure:
                print(f"{customer} is {failure.status}:", await tickets.get())
            for error in (await job.arefresh()).errors:
                print("   attempt", error.attempt, "failed:", error.message)


if __name__ == "__main__":
    asyncio.run(main())
