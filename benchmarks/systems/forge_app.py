"""The tasks of the benchmark, for `forge worker benchmarks.systems.forge_app:forge`.

The store comes from FORGE_URL. Handlers count their calls in `TALLY`; `stamp` writes one line
per arrival to the file named by FORGE_BENCH_STAMPS, so that a worker started by command can be
read too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable

from forge_jobs import Forge

QUEUE = "bench"
SLOTS = 100
STAMPS = "FORGE_BENCH_STAMPS"


class CallCounter:
    """Calls so far, and what to do when their number reaches a mark; any thread may count."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, marks: dict[int, Callable[[], None]]) -> None:
        self.calls = 0
        self._marks = marks
        self._number = itertools.count(1)

    def count(self) -> None:
        self.calls = number = next(self._number)
        if number in self._marks:
            self._marks[number]()


TALLY = CallCounter()
forge = Forge()
if os.environ.get("FORGE_BENCH_RATE"):
    forge.queue(QUEUE, rate=os.environ["FORGE_BENCH_RATE"])


@forge.task(kind="noop", queue=QUEUE)
async def noop() -> None:
    TALLY.count()


@forge.task(kind="noop_def", queue=QUEUE)
def noop_def() -> None:
    TALLY.count()


@forge.task(kind="wait", queue=QUEUE)
async def wait() -> None:
    await asyncio.sleep(0.01)
    TALLY.count()


@forge.task(kind="wait_5", queue=QUEUE)
async def wait_5() -> None:
    await asyncio.sleep(0.005)
    TALLY.count()


@forge.task(kind="long_stamp", queue=QUEUE)
async def long_stamp() -> None:
    """Writes the moment of each start, then outlives the measure."""
    with open(os.environ[STAMPS], "a") as stamps:
        stamps.write(f"{time.monotonic()!r}\n")
    await asyncio.sleep(600)


@forge.task(kind="start_stamp", queue=QUEUE)
async def start_stamp() -> None:
    """Writes the moment of its start."""
    with open(os.environ[STAMPS], "a") as stamps:
        stamps.write(f"{time.monotonic()!r}\n")


@forge.task(kind="stamp", queue=QUEUE)
async def stamp(sent: float) -> None:
    milliseconds = (time.monotonic() - sent) * 1_000
    with open(os.environ[STAMPS], "a") as stamps:
        stamps.write(f"{milliseconds!r}\n")


TASKS = {
    "noop": noop, "noop_def": noop_def, "wait": wait, "wait_5": wait_5, "long_stamp": long_stamp,
    "start_stamp": start_stamp,
}  # fmt: skip
