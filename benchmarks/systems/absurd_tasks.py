"""absurd's tasks, and a worker of its own process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from absurd_sdk import AsyncAbsurd, AsyncTaskContext

from benchmarks.systems import peer
from benchmarks.systems.timing import Notes

QUEUE = "bench"
NOTED = Notes()


async def nothing() -> None:
    """A step."""


async def steps(params: Any, ctx: AsyncTaskContext) -> None:
    for _ in range(params["steps"]):
        await ctx.step("step", nothing)


async def lone(params: Any, ctx: AsyncTaskContext) -> None:
    """A step before the clock starts, because the first one may prepare something."""
    await ctx.step("first", nothing)
    started = time.monotonic()
    for _ in range(params["steps"]):
        await ctx.step("step", nothing)
    NOTED.add((time.monotonic() - started) / params["steps"])
    NOTED.end()


async def resume(params: Any, ctx: AsyncTaskContext) -> None:
    for _ in range(params["steps"]):
        await ctx.step("step", nothing)
    for number in range(params["times"]):
        await ctx.sleep_for("sleep", 0.05)
        await ctx.step(f"next {number}", NOTED.arrived)
    NOTED.end()


async def wait(params: Any, ctx: AsyncTaskContext) -> None:
    sent = await ctx.await_event(params["event"])

    async def stamp() -> None:
        await peer.stamp(sent)

    await ctx.step("stamp", stamp)


def register(app: AsyncAbsurd) -> AsyncAbsurd:
    for name, task in {"steps": steps, "lone": lone, "resume": resume, "wait": wait}.items():
        app.register_task(name)(task)
    return app


def watch_claims(app: Any) -> None:
    """Keep the moment at which the last claim that brought a task was asked for."""
    plain = app.claim_tasks

    async def claim_tasks(**options: Any) -> Any:
        asked = time.monotonic()
        claimed = await plain(**options)
        if claimed:
            NOTED.since = asked
        return claimed

    app.claim_tasks = claim_tasks


def run_worker(url: str, concurrency: int, go: Any, pipe: Any) -> None:
    """A worker process: it begins when `go` is set, and ends at a word from the pipe."""
    asyncio.run(_run_worker(url, concurrency, go, pipe))


async def _run_worker(url: str, concurrency: int, go: Any, pipe: Any) -> None:
    app = register(AsyncAbsurd(url, queue_name=QUEUE))
    await app._ensure_connected()  # pyright: ignore[reportPrivateUsage]
    pipe.send(("up", None))
    await asyncio.to_thread(go.wait, peer.CALL_LIMIT_SECONDS)
    cpu = time.process_time()
    working = asyncio.create_task(app.start_worker(concurrency=concurrency))
    while not pipe.poll():
        await asyncio.sleep(0.02)
    pipe.send(("ended", time.process_time() - cpu))
    app.stop_worker()
    await asyncio.wait([working], timeout=5)
    await app.close()
