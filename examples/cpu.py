"""Work for the processor in a child process, killed at its timeout. Run: python examples/cpu.py"""

import asyncio
import os

from forge_jobs import Context, Forge, JobFailed

forge = Forge()


# cpu=True: the function runs in a warm child process, so it neither holds the GIL of the worker
# nor blocks its event loop. At the timeout, and on cancel, the child is killed.
@forge.task(queue="cpu", cpu=True, timeout="3s", max_attempts=1)
def count_primes(below: int, ctx: Context) -> dict[str, int]:
    ctx.log.info("counting primes below %d", below)
    primes = sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, below))
    return {"primes": primes, "pid": os.getpid()}


async def main() -> None:
    async with forge.worker(queues=["cpu:2"]):
        found = await (await count_primes.aenqueue(10_000)).aresult(timeout=30)
        print(f"{found['primes']} primes, in another process: {found['pid'] != os.getpid()}")

        endless = await count_primes.aenqueue(1_000_000_000)
        ticks = 0
        while not (await endless.arefresh()).finished_at:
            await asyncio.sleep(0.05)  # the event loop goes on meanwhile
            ticks += 1
        print("the event loop was free:", ticks > 5)
        try:
            await endless.aresult(timeout=30)
        except JobFailed as failure:
            print(f"{failure.status}: {failure.error}")


if __name__ == "__main__":
    asyncio.run(main())
