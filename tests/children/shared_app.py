"""An application with ``cpu=True`` tasks on a store that the worker shares with the test."""

import os
import signal
import time
from pathlib import Path

from forge_jobs import Context, Forge, Retry

forge = Forge(os.environ["CHILDREN_URL"])
forge.rate_limit("calls", "1000/s")


@forge.task(queue="cpu", cpu=True)
def spread(number: int, ctx: Context) -> dict[str, int]:
    """Enqueues two jobs from the child, one with its own finish, and acquires a permit there."""
    ctx.rate_limit.acquire_sync("calls")
    ctx.progress(0.5, "half")
    ctx.log.info("spreading %d", number)
    ctx.enqueue("collect", {"value": number, "way": "by kind"})
    ctx.on_done(collect, number, "on done")
    return {"pid": os.getpid(), "parent": os.getppid()}


@forge.task(queue="cpu", concurrency=1, per="args.value")
async def collect(value: int, way: str) -> str:
    return way


@forge.task(queue="cpu", cpu=True, retry=Retry(delays=[0.05]))
def dies_once(mark: str) -> int:
    path = Path(mark)
    if not path.exists():
        path.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@forge.task(queue="cpu", cpu=True, timeout="1s")
def too_long(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    time.sleep(300)


@forge.task(queue="cpu", cpu=True)
def endless(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    time.sleep(300)
