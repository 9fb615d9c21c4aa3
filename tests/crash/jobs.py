"""The application of the crash tests. What handlers do is noted as in the storm."""

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from forge_jobs import Context, Forge
from rigs.storms.history import History

FOLDER = Path(os.environ["CRASH_FOLDER"])

forge = Forge(os.environ["CRASH_URL"])
_history: list[History] = []


def note(op: str, name: str, **more: object) -> None:
    if not _history:
        _history.append(History(FOLDER / f"runner-{os.getpid()}.jsonl"))
    _history[0].write(op, name=name, **more)


@forge.task(queue="crash")
async def noop(name: str) -> None:
    """Nothing, quickly."""


@forge.task(queue="crash")
async def rest(name: str, seconds: float) -> str:
    note("start", name)
    await asyncio.sleep(seconds)
    note("end", name)
    return name


@forge.task(queue="crash")
async def sleep_durably(name: str, ctx: Context) -> None:
    await ctx.sleep("1h")


@forge.task(queue="crash")
def rest_in_thread(name: str, seconds: float) -> str:
    note("start", name)
    time.sleep(seconds)
    note("end", name)
    return name


@forge.task(queue="crash")
async def cancel_then_finish(name: str, ctx: Context) -> str:
    """The first run waits until it is cancelled; a later one returns at once."""
    note("start", name, attempt=ctx.job.attempts)
    if ctx.job.attempts > 1:
        return "second"
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        note("cancelled", name, reason=ctx.cancelled)
        raise
    return "first"


@forge.task(queue="crash")
def return_late(name: str, ctx: Context) -> str:
    """The first run returns when it is allowed to; a later one at once."""
    note("start", name, attempt=ctx.job.attempts)
    if ctx.job.attempts > 1:
        return "second"
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.05)
    note("late", name, cancelled=ctx.cancelled)
    return "first"


@forge.task(queue="crash")
async def block(name: str, seconds: float) -> str:
    """Breaks the first rule of coroutines."""
    note("start", name)
    time.sleep(seconds)
    note("end", name)
    return name


@forge.task(queue="crash")
async def leave(name: str) -> None:
    note("start", name)
    os._exit(1)


@forge.task(queue="crash")
async def hold_lock(name: str) -> None:
    """Never ends, and lets no other thread run."""
    note("start", name)
    re.match(r"(a+)+$", "a" * 60 + "b")


@forge.task(queue="crash", cpu=True)
def sow(name: str, ctx: Context) -> list[str]:
    """Enqueues from inside a child: by task, by kind, and with its own success."""
    first = ctx.enqueue(rest, f"{name} by task", 0)
    second = ctx.enqueue("rest", {"name": f"{name} by kind", "seconds": 0})
    ctx.on_done(rest, f"{name} on done", 0)
    return [first.id, second.id]


@forge.task(queue="crash", cpu=True)
def warm(name: str) -> None:
    """Its child is up afterwards and takes the next job."""


@forge.task(queue="crash", cpu=True)
def family(name: str) -> None:
    """A child process with a child of its own."""
    _raise_family(name)


@forge.task(queue="crash", cpu=True, timeout="3s")
def short_family(name: str) -> None:
    """The same with little time."""
    _raise_family(name)


def _raise_family(name: str) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    note("start", name, family=[os.getpid(), sleeper.pid])
    time.sleep(300)
