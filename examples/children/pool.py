"""Jobs for warm programs in other languages. Run: python examples/children/pool.py"""

import asyncio
import shutil
import sys
from pathlib import Path

from forge_jobs import Forge, WorkerPoolHandler

here = Path(__file__).parent
programs = {
    "resize": [sys.executable, str(here / "resize.py")],
    "shout": ["/bin/sh", str(here / "shout.sh")],
}
if node := shutil.which("node"):
    programs["resize_js"] = [node, str(here / "resize.js")]

forge = Forge()
for kind, argv in programs.items():
    forge.register(WorkerPoolHandler(kind=kind, argv=argv, size=2), queue="pictures")


async def main() -> None:
    picture = {"width": 1600, "height": 1200, "to": 320}
    async with forge, forge.worker(queues=["pictures"]):
        for kind in programs:
            payload = "hello from a shell" if kind == "shout" else picture
            job = await forge.aenqueue(kind, payload)
            print(kind, await job.aresult(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
