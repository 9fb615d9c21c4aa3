"""The application of the kill storm: handlers that record when they start and end."""

import asyncio
import os
import time
from pathlib import Path

from forge_jobs import Context, Forge
from rigs.storms.history import History

FOLDER = Path(os.environ["STORM_FOLDER"])
ATTEMPTS = 1_000

forge = Forge(os.environ["STORM_URL"])
_history: list[History] = []


def note(op: str, name: str, ctx: Context) -> None:
    if not _history:
        _history.append(History(FOLDER / f"runner-{os.getpid()}.jsonl"))
    # The epoch is not part of the handler's context; a child process does not have it.
    claim = getattr(ctx._link, "job", None)
    _history[0].write(
        op,
        name=name,
        job=ctx.job.id,
        attempt=ctx.job.attempts,
        epoch=getattr(claim, "epoch", None),
        parent=os.getppid(),
    )


@forge.task(queue="storm", max_attempts=ATTEMPTS)
async def soft(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    await asyncio.sleep(ms / 1000)
    note("end", name, ctx)
    return name


@forge.task(queue="storm", max_attempts=ATTEMPTS)
def threaded(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    time.sleep(ms / 1000)
    note("end", name, ctx)
    return name


@forge.task(queue="storm_cpu", cpu=True, max_attempts=ATTEMPTS)
def heavy(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    time.sleep(ms / 1000)
    note("end", name, ctx)
    return name
