"""The application of the joining storm: slow handlers that record when they start and end."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forge_jobs import Context, Forge
from rigs.storms.history import History

QUEUE = "slow"

forge = Forge(os.environ["STORM_URL"])
_history: list[History] = []


@contextmanager
def _noted(ctx: Context) -> Iterator[None]:
    if not _history:
        folder = Path(os.environ["STORM_FOLDER"])
        _history.append(History(folder / f"runner-{os.getpid()}.jsonl"))
    _history[0].write("start", job=ctx.job.id, attempt=ctx.job.attempts)
    try:
        yield
    finally:
        _history[0].write("end", job=ctx.job.id, attempt=ctx.job.attempts)


@forge.task(queue=QUEUE, max_attempts=1_000)
async def awaiting(ms: float, ctx: Context) -> None:
    with _noted(ctx):
        await asyncio.sleep(ms / 1000)


@forge.task(queue=QUEUE, max_attempts=1_000)
def threaded(ms: float, ctx: Context) -> None:
    with _noted(ctx):
        end = time.monotonic() + ms / 1000
        while time.monotonic() < end:
            ctx.raise_if_cancelled()
            time.sleep(0.02)
