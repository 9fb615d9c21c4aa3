"""The tasks of the benchmark, for `forge worker benchmarks.systems.forge_app:forge`.

The store comes from FORGE_URL. Handlers count their calls in `TALLY`; `stamp` writes one line
per arrival to the file named by FORGE_BENCH_STAMPS, so that a worker started by command can be
read too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from forge_jobs import Forge

QUEUE = "bench"
SLOTS = 100
STAMPS = "FORGE_BENCH_STAMPS"


@dataclass(slots=True)
class Tally:
    """Calls so far, and what to do when their number reaches a mark."""

    calls: int = 0
    marks: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])

    def count(self) -> None:
        self.calls += 1
        if self.calls in self.marks:
            self.marks[self.calls]()


TALLY = Tally()
forge = Forge()


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


@forge.task(kind="stamp", queue=QUEUE)
async def stamp(sent: float) -> None:
    milliseconds = (time.monotonic() - sent) * 1_000
    with open(os.environ[STAMPS], "a") as stamps:
        stamps.write(f"{milliseconds!r}\n")


TASKS = {"noop": noop, "noop_def": noop_def, "wait": wait}
