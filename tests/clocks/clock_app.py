"""The application of the tests with wrong clocks. It writes a line to a file for every start and
end, with the monotonic time of the machine, which no process sees wrong."""

import asyncio
import json
import os
import sys
import time

from forge_jobs import Forge

EVENTS = os.environ["CLOCK_EVENTS"]

forge = Forge()
forge.queue("ours", slots=4)
forge.queue("theirs", slots=4)
forge.queue("shared", slots=int(os.environ["CLOCK_SLOTS"]))
forge.queue("quick", slots=4)


def record_event(what: str, name: str) -> None:
    line = {"what": what, "name": name, "pid": os.getpid(), "mono": time.monotonic()}
    with open(EVENTS, "a") as events:
        events.write(json.dumps(line) + "\n")


@forge.task()
async def hold(name: str, seconds: float) -> None:
    record_event("start", name)
    await asyncio.sleep(seconds)
    record_event("end", name)


@forge.task(queue="quick", concurrency=1)
async def alone(name: str, seconds: float) -> None:
    record_event("start", name)
    await asyncio.sleep(seconds)
    record_event("end", name)


@forge.task(queue="quick")
async def quick(name: str) -> None:
    record_event("start", name)
    record_event("end", name)


@forge.cron("*/2 * * * * *", name="often", overlap="allow", missed="skip")
@forge.task(queue="quick")
async def often() -> None:
    record_event("start", "often")


@forge.cron(f"{os.environ['CLOCK_MINUTE']} * * * *", name="hourly", missed="all")
@forge.task(queue="quick")
async def hourly() -> None:
    record_event("start", "hourly")


def produce(name: str, delay_s: float) -> None:
    """Enqueue the jobs of a producer, with this process's clock."""
    record_event("ask", f"{name}-soon")
    quick.using(delay=delay_s).enqueue(f"{name}-soon")
    quick.using(delay=delay_s, expires=delay_s + 300).enqueue(f"{name}-expires")
    quick.using(delay="30m").enqueue(f"{name}-later")
    for number in range(3):
        hold.using(queue="shared").enqueue(f"{name}-shared-{number}", 0.5)
        alone.enqueue(f"{name}-alone-{number}", 0.3)
    record_event("asked", f"{name}-soon")


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]))
    forge.close()
