"""An application with ``cpu=True`` tasks on a store of this process alone."""

import faulthandler
import os
import time
from pathlib import Path

from forge_jobs import Context, Forge, Retry

forge = Forge("memory://cpu-tasks")
SOON = Retry(delays=[0.05])


@forge.task(queue="cpu", cpu=True)
def square(number: int, ctx: Context) -> dict[str, int]:
    ctx.progress(0.5, "half")
    ctx.log.info("squaring %d", number)
    ctx.on_done(collect, number * number)
    return {"square": number * number, "pid": os.getpid()}


@forge.task(queue="cpu")
async def collect(value: int) -> int:
    return value


@forge.task(queue="cpu", cpu=True, timeout="1s", max_attempts=1)
def too_long(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)


@forge.task(queue="cpu", cpu=True)
def endless(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)


@forge.task(queue="cpu", cpu=True, retry=SOON)
def fatal() -> None:
    os._exit(1)


@forge.task(queue="cpu", cpu=True, retry=SOON, max_attempts=2)
def fails(ctx: Context) -> None:
    raise RuntimeError(f"attempt {ctx.job.attempts}")


@forge.task(queue="cpu", cpu=True, timeout="5m", soft_timeout="1s", max_attempts=1)
def wraps_up(ctx: Context) -> bool:
    while not ctx.soft_timeout_reached:
        time.sleep(0.01)
    return ctx.cancelled


@forge.task(queue="cpu", cpu=True, max_attempts=1)
def segfaults() -> None:
    print("token=planted in the last words", flush=True)
    faulthandler._sigsegv()  # type: ignore[attr-defined]
