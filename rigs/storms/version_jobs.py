"""The application of the versions storm, in the version that STORM_VERSION names: old or new.

The new one has another kind, an optional argument, a renamed argument and another type. Every job
has the argument ``name``, so that the checks find it.
"""

import asyncio
import os
import time
from typing import Any

from forge_jobs import Context, Forge
from rigs.storms.history import History
from rigs.storms.jobs import ATTEMPTS, FOLDER, note

VERSION = os.environ["STORM_VERSION"]
QUEUE, CPU_QUEUE = "versions", "versions_cpu"
forge = Forge(os.environ["STORM_URL"])


@forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
async def same(name: str, ms: float, ctx: Context) -> str:
    return await _run(name, ms, ctx)


if VERSION == "old":

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    async def optional(name: str, ms: float, ctx: Context) -> str:
        return await _run(name, ms, ctx)

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    def renamed(name: str, ms: float, to: str, ctx: Context) -> str:
        return _run_in_thread(name, ms, ctx)

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    async def typed(name: str, ms: float, number: int, ctx: Context) -> str:
        return await _run(name, ms, ctx)

    @forge.task(queue=CPU_QUEUE, cpu=True, max_attempts=ATTEMPTS)
    def heavy(name: str, ms: float, ctx: Context) -> str:
        return _run_in_thread(name, ms, ctx)

else:

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    async def optional(name: str, ms: float, ctx: Context, cc: str = "") -> str:
        return await _run(name, ms, ctx)

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    def renamed(name: str, ms: float, recipient: str, ctx: Context) -> str:
        return _run_in_thread(name, ms, ctx)

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    async def typed(name: str, ms: float, number: int | str, ctx: Context) -> str:
        return await _run(name, ms, ctx)

    @forge.task(queue=CPU_QUEUE, cpu=True, max_attempts=ATTEMPTS)
    def heavy(name: str, ms: float, ctx: Context, base: int = 10) -> str:
        return _run_in_thread(name, ms, ctx)

    @forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
    async def fresh(name: str, ms: float, ctx: Context) -> str:
        return await _run(name, ms, ctx)


@forge.task(queue=QUEUE, max_attempts=ATTEMPTS)
async def chain(name: str, ms: float, ctx: Context) -> str:
    """Its successor has the arguments of the version that ran it."""
    follower = f"{name}+"
    History(FOLDER / f"chain-{os.getpid()}.jsonl").write("invoke", names=[follower], keyed=True)
    ctx.on_done(optional, **arguments("optional", follower, ms))
    return await _run(name, ms, ctx)


def arguments(kind: str, name: str, ms: float) -> dict[str, Any]:
    """The arguments of a job of this kind, as this version passes them."""
    is_new = VERSION == "new"
    more: dict[str, Any] = {
        "optional": {"cc": "b"} if is_new else {},
        "renamed": {"recipient" if is_new else "to": "a"},
        "typed": {"number": "seven" if is_new else 7},
        "heavy": {"base": 2} if is_new else {},
    }
    return {"name": name, "ms": ms, **more.get(kind, {})}


async def _run(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    await asyncio.sleep(ms / 1000)
    note("end", name, ctx)
    return name


def _run_in_thread(name: str, ms: float, ctx: Context) -> str:
    note("start", name, ctx)
    time.sleep(ms / 1000)
    note("end", name, ctx)
    return name
