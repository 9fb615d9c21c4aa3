"""Store three jobs in a SQLite file and run them. Run: python hello.py"""

import asyncio

from forge_jobs import Forge

forge = Forge()  # the address in FORGE_URL or DATABASE_URL, else the file forge.db


@forge.task(queue="mail", max_attempts=3)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    jobs = await greet.aenqueue_many([("Ada",), ("Grace",), ("Linus",)])
    async with forge.worker(queues=["mail"]):
        for job in jobs:
            print(await job.aresult(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
