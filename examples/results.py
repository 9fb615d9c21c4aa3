"""Results: wait for one job, for many, handle one that failed. Run: python examples/results.py"""

import asyncio
from dataclasses import dataclass

from forge_jobs import Forge, JobFailed, ResultTimeout

forge = Forge()


@dataclass
class Quote:
    item: str
    cents: int


@forge.task(queue="quotes", max_attempts=1)
async def quote(item: str, amount: int = 1) -> Quote:
    if item == "unicorn":
        raise LookupError("we do not sell unicorns")
    return Quote(item, 250 * amount)


async def main() -> None:
    one = await quote.aenqueue("pen", amount=2)
    try:
        await one.aresult(timeout="100ms")  # no worker yet; job.result() is the same for sync code
    except ResultTimeout:
        print("not yet; the job stays stored and goes on")

    async with forge.worker(queues=["quotes"]):
        print(await one.aresult(timeout=10))  # a Quote again, not a dict

        # One transaction for all of them; the handles come in the order of the calls.
        jobs = await quote.aenqueue_many([("ink",), ("unicorn",), {"item": "pad", "amount": 4}])
        results = await asyncio.gather(
            *(job.aresult(timeout=10) for job in jobs), return_exceptions=True
        )
        for result in results:
            if isinstance(result, JobFailed):
                print("failed:", result.error)
            else:
                print(result)


if __name__ == "__main__":
    asyncio.run(main())
