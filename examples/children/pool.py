"""Runs jobs in a pool of warm programs: ``python examples/children/pool.py``."""

import asyncio
import sys
from pathlib import Path

from forge_jobs import Forge, WorkerPoolHandler

here = Path(__file__).parent
forge = Forge("memory://")
forge.register(
    WorkerPoolHandler(kind="resize", argv=[sys.executable, str(here / "resize.py")], size=2),
    queue="pictures",
)
forge.register(
    WorkerPoolHandler(kind="shout", argv=["/bin/sh", str(here / "shout.sh")]),
    queue="pictures",
)


async def main() -> None:
    async with forge, forge.worker(queues=["pictures"]):
        jobs = [
            await forge.aenqueue("resize", {"width": 1600, "height": 1200, "to": 320}),
            await forge.aenqueue("shout", "hello from a shell"),
        ]
        for job in jobs:
            print(await job.aresult(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
