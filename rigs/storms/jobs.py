"""The application of the kill storm: handlers that record when they start and end."""

import asyncio
import os
import time
import zlib
from pathlib import Path

from forge_jobs import Context, Forge
from rigs.storms.history import History

FOLDER = Path(os.environ["STORM_FOLDER"])
ATTEMPTS = 1_000
FORK_EVERY = 30

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


def forks(name: str) -> bool:
    """Whether the handler of this job forks; the same in every run."""
    return zlib.crc32(name.encode()) % FORK_EVERY == 0


@forge.task(queue="storm", max_attempts=ATTEMPTS)
async def soft(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    if forks(name):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        await asyncio.to_thread(os.waitpid, pid, 0)
    await asyncio.sleep(ms / 1000)
    note("end", name, ctx)
    return name


@forge.task(queue="storm", max_attempts=ATTEMPTS)
def threaded(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    if forks(name):
        _use_forge_in_a_fork(name, ctx)
    time.sleep(ms / 1000)
    note("end", name, ctx)
    return name


@forge.task(queue="storm_cpu", cpu=True, max_attempts=ATTEMPTS)
def heavy(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    time.sleep(ms / 1000)
    note("end", name, ctx)
    return name


def _use_forge_in_a_fork(name: str, ctx: Context) -> None:
    """The child of a worker's thread reads the job, over connections of its own."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if forge.job(ctx.job.id).refresh().payload["name"] == name else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"a forked child exited with {status}")
