"""The application of the upgrade rig, run by old and new releases alike.

As a program it is a producer: ``python -m tests.upgrade.application COUNT FIRST`` enqueues jobs
whose options take turns. Handlers and producers write what they see into files of their own.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from forge_jobs import Context, Forge
from rigs.storms.history import History
from tests.upgrade import OPTIONS, PRODUCER, ROUND

RELEASE = os.environ["UPGRADE_RELEASE"]
URL = os.environ["UPGRADE_URL"]
FOLDER = Path(os.environ["UPGRADE_FOLDER"])

forge = Forge(URL)
_files: list[History] = []


def write(op: str, **fields: object) -> None:
    if not _files:
        _files.append(History(FOLDER / f"{os.getpid()}.jsonl"))
    _files[0].write(op, release=RELEASE, **fields)


@forge.task(queue="upgrade")
async def bury(job: dict[str, Any]) -> None:
    write("buried", n=job["payload"]["n"], error=job["error"])


@forge.task(queue="upgrade", max_attempts=20)
async def work(n: int, ctx: Context) -> int:
    write("start", n=n, tags=ctx.job.tags)
    await asyncio.sleep(0.02)
    write("end", n=n)
    return n


@forge.task(queue="upgrade", max_attempts=1, on_dead=bury)
async def overrun(n: int, ctx: Context) -> None:
    write("start", n=n, tags=ctx.job.tags)
    await asyncio.sleep(60)


def produce(count: int, first: int) -> None:
    for n in range(first, first + count):
        option = OPTIONS[n % len(OPTIONS)]
        match option:
            case "timeout":
                job = overrun.using(timeout=0.2).enqueue(n)
            case "tags":
                job = work.using(tags=["blue", f"n{n}"]).enqueue(n)
            case "expiry":
                job = work.using(delay=0.6, expires=0.3).enqueue(n)
            case "lane":
                job = work.using(lane=f"lane-{n % 2}", order="serial").enqueue(n)
            case "key":
                # Every producer of a round asks for the same keys: the first one gets them.
                key = f"{n // ROUND}-{n % PRODUCER}"
                job = work.using(dedupe_key=key, dedupe_for="1h").enqueue(n)
            case "note" if RELEASE != "old":
                options: Any = {"note": f"from-{n}"}
                job = work.using(**options).enqueue(n)
            case _:
                job = work.enqueue(n)
        write("enqueued", n=n, id=job.id, option=option)
    forge.close()


if __name__ == "__main__":
    produce(int(sys.argv[1]), int(sys.argv[2]))
