"""Our durable steps, sleeps and events, one verb per measure. Tasks are registered when they are
used.

Keeps: every finished job with its steps: name, value as JSON, times, fingerprint of the arguments.
Sleeping and waiting jobs are rows; no process holds anything for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.systems import Announce
from benchmarks.systems.timing import STOP_SUFFIX, Notes, trickle_async

LIMIT_SECONDS = 55.0
BATCH = 1_000
EVENT = "go"


class Steps:
    """What a Forge does with steps. `_app` and `_announce` are those of the system."""

    _app: Any
    _announce: Announce
    _registered: dict[str, Any] | None = None

    def _tasks(self) -> dict[str, Any]:
        """The tasks, registered once."""
        if self._registered is None:
            self._noted = Notes()
            self._registered = register(self._app, self._noted)
        self._noted.clear()
        return self._registered

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[None]:
        async with self._app.forge.worker(queues=[f"{self._app.QUEUE}:{self._app.SLOTS}"]):
            yield

    def lone(self, steps: int) -> dict[str, Any]:
        """Seconds per step of a workflow that runs alone."""
        task = self._tasks()["lone"]

        async def run() -> None:
            async with self._worker():
                await task.aenqueue(steps)
                await asyncio.wait_for(self._noted.ended(), LIMIT_SECONDS)

        asyncio.run(run())
        return {"lone": self._noted.values}

    def resume(self, checkpoints: int, times: int) -> dict[str, Any]:
        """Milliseconds from the exchange that claims a workflow with so many stored steps to its
        next step."""
        task = self._tasks()["resume"]
        watch_claims(self._app, self._noted)

        async def run() -> None:
            async with self._worker():
                await task.aenqueue(checkpoints, times)
                await asyncio.wait_for(self._noted.ended(), LIMIT_SECONDS)

        asyncio.run(run())
        return {"resumed": self._noted.values}

    def rest(self, jobs: int, rest_s: float, stored: int = 0) -> dict[str, Any]:
        """Memory of a worker `rest_s` seconds after `jobs` no-op jobs, beside what its store holds.

        `stored`: it parks so many sleeping workflows first, and its memory is read before, too.
        """
        return asyncio.run(self._rest(jobs, rest_s, stored))

    async def _rest(self, jobs: int, rest_s: float, stored: int) -> dict[str, Any]:
        import psutil

        sleep = self._tasks()["sleep"]
        process, reached = psutil.Process(), asyncio.Event()
        self._app.TALLY.begin({jobs: reached.set})
        async with self._worker():
            await self._app.noop.aenqueue_many([()] * jobs)
            await asyncio.wait_for(reached.wait(), LIMIT_SECONDS)
            await asyncio.sleep(rest_s)
            before = process.memory_info().rss
            for first in range(0, stored, BATCH):
                await sleep.aenqueue_many([()] * min(BATCH, stored - first))
            deadline = time.monotonic() + LIMIT_SECONDS
            while stored and self._noted.count < stored and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            if stored:
                await asyncio.sleep(rest_s)
            return {"before": before, "after": process.memory_info().rss}

    def park(self, jobs: int) -> dict[str, Any]:
        """Store workflows that wait for an event of their own, then take a step."""
        task = self._tasks()["take_step"]
        task.enqueue_many([(f"{number}",) for number in range(jobs)])
        return {}

    def park_one(self) -> dict[str, Any]:
        """Store a workflow that waits for an event that comes much later, and run it until then."""
        task = self._tasks()["hear"]

        async def run() -> None:
            async with self._worker():
                await task.aenqueue()
                await asyncio.wait_for(self._noted.ended(), LIMIT_SECONDS)

        asyncio.run(run())
        return {}

    def listen(self, stamps: str, jobs: int = 0) -> dict[str, Any]:
        """A worker, until a file beside the stamps says stop."""
        self._tasks()
        self._noted.file = Path(stamps)

        async def run() -> None:
            stop, limit = Path(stamps + STOP_SUFFIX), time.monotonic() + LIMIT_SECONDS
            async with self._worker():
                self._announce("up")
                while not stop.exists() and time.monotonic() < limit:
                    await asyncio.sleep(0.05)

        asyncio.run(run())
        return {}

    def send_events(self, jobs: int, gap: float) -> dict[str, Any]:
        """One event after the other, each to a workflow of its own."""
        numbers = iter(range(jobs))

        async def send(sent: float) -> None:
            await self._app.forge.asend(EVENT, sent, key=f"{next(numbers)}")

        return {"calls": asyncio.run(trickle_async(send, jobs, gap))}

    def broadcast(self) -> dict[str, Any]:
        """One event to all; when the call began and ended. A first one, to nobody, opens the
        connection."""

        async def send() -> dict[str, Any]:
            await self._app.forge.asend("nobody", 1)
            began = time.monotonic()
            await self._app.forge.asend(EVENT, 1, key="all")
            return {"began": began, "ended": time.monotonic()}

        return asyncio.run(send())


async def nothing() -> None:
    """A step."""


def watch_claims(app: Any, noted: Notes) -> None:
    """Keep the moment at which the last exchange that brought a claim was asked for."""
    jobs_of_store: Any = type(app.forge.store.jobs)
    plain: Callable[[Any, Any], Awaitable[Any]] = jobs_of_store.exchange

    async def exchange(store: Any, request: Any) -> Any:
        asked = time.monotonic()
        answer = await plain(store, request)
        if answer.claims:
            noted.since = asked
        return answer

    jobs_of_store.exchange = exchange


def register(app: Any, noted: Notes) -> dict[str, Any]:
    """The tasks of these measures."""
    from forge_jobs import Context

    @app.forge.task(kind="lone", queue=app.QUEUE)
    async def lone(steps: int, ctx: Context) -> None:
        """A step before the clock starts, because the first one may prepare something."""
        await ctx.step("first", nothing)
        started = time.monotonic()
        for _ in range(steps):
            await ctx.step("step", nothing)
        noted.add((time.monotonic() - started) / steps)
        noted.end()

    @app.forge.task(kind="resume", queue=app.QUEUE)
    async def resume(steps: int, times: int, ctx: Context) -> None:
        for _ in range(steps):
            await ctx.step("step", nothing)
        for number in range(times):
            await ctx.sleep("50ms")
            await ctx.step(f"next {number}", noted.arrived)
        noted.end()

    @app.forge.task(kind="sleep", queue=app.QUEUE)
    async def sleep(ctx: Context) -> None:
        noted.count += 1
        await ctx.sleep("1h")

    @app.forge.task(kind="hear", queue=app.QUEUE)
    async def hear(ctx: Context) -> None:
        try:
            await ctx.wait_for(EVENT, key="all")
        finally:
            noted.end()

    @app.forge.task(kind="take_step", queue=app.QUEUE)
    async def take_step(number: str, ctx: Context) -> None:
        sent = await ctx.wait_for(EVENT, key=number, type=float)
        await ctx.step("stamp", noted.stamp, sent)

    return {"lone": lone, "resume": resume, "sleep": sleep, "hear": hear, "take_step": take_step}
