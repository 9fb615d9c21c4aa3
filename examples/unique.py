"""Unique jobs: a dedupe key belongs to one job at a time. Run: python examples/unique.py"""

import asyncio

from forge_jobs import Forge

forge = Forge()
started = asyncio.Event()
changed = asyncio.Event()


@forge.task(queue="unique")
async def welcome(user: str) -> str:
    return f"welcomed {user}"


@forge.task(queue="unique", concurrency=1)  # two never run at once
async def reindex() -> None:
    started.set()
    await changed.wait()


async def main() -> None:
    # At most one live job has the key; after its end the key is taken for a minute more.
    once = welcome.using(dedupe_key="welcome:ada", dedupe_for="1m")
    first, again = await once.aenqueue("Ada"), await once.aenqueue("Ada")
    print("same job while it waits:", again.duplicate, again.id == first.id)

    async with forge.worker(queues=["unique"]):
        print(await first.aresult(timeout=10))
        later = await once.aenqueue("Ada")
        print("same job after its end:", later.duplicate)

        # unique_while="waiting": the key is free as soon as the job starts. A change that comes
        # while a reindex runs needs one more reindex, and never more than one.
        soon = reindex.using(dedupe_key="reindex", unique_while="waiting")
        running = await soon.aenqueue()
        await started.wait()
        changes = [await soon.aenqueue() for _ in range(5)]
        print("reindex jobs for 5 changes:", len({job.id for job in changes} - {running.id}))
        changed.set()
        for job in (running, *changes):
            await job.aresult(timeout=10)


if __name__ == "__main__":
    asyncio.run(main())
