"""The application of the tests with wrong clocks: every start and end is a line in a file, stamped
with the machine's steady clock, which no process sees wrong."""

import asyncio
import json
import os
import sys
import time

from forge_jobs import Forge

NOTES = os.environ["CLOCK_NOTES"]

forge = Forge()
forge.queue("ours", slots=4)
forge.queue("theirs", slots=4)
forge.queue("shared", slots=int(os.environ["CLOCK_SLOTS"]))
forge.queue("quick", slots=4)


def note(what: str, name: str) -> None:
    line = {"what": what, "name": name, "pid": os.getpid(), "mono": time.monotonic()}
    with open(NOTES, "a") as notes:
        notes.write(json.dumps(line) + "\n")


@forge.task()
async def hold(name: str, seconds: float) -> None:
    note("start", name)
    await asyncio.sleep(seconds)
    note("end", name)


@forge.task(queue="quick", concurrency=1)
async def alone(name: str, seconds: float) -> None:
    note("start", name)
    await asyncio.sleep(seconds)
    note("end", name)


@forge.task(queue="quick")
async def quick(name: str) -> None:
    note("start", name)
    note("end", name)


@forge.cron("*/2 * * * * *", name="often", overlap="allow", missed="skip")
@forge.task(queue="quick")
async def often() -> None:
    note("start", "often")


@forge.cron(f"{os.environ['CLOCK_MINUTE']} * * * *", name="hourly", missed="all")
@forge.task(queue="quick")
async def hourly() -> None:
    note("start", "hourly")


def produce(name: str, delay_s: float) -> None:
    """What a producer with this process's clock asks for."""
    note("ask", f"{name}-soon")
    quick.using(delay=delay_s).enqueue(f"{name}-soon")
    quick.using(delay=delay_s, expires=delay_s + 300).enqueue(f"{name}-expires")
    quick.using(delay="30m").enqueue(f"{name}-later")
    for number in range(3):
        hold.using(queue="shared").enqueue(f"{name}-shared-{number}", 0.5)
        alone.enqueue(f"{name}-alone-{number}", 0.3)
    note("asked", f"{name}-soon")


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]))
    forge.close()
