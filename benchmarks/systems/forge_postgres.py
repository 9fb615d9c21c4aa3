"""Forge Jobs on Postgres, through its public names.

Keeps: every finished job with its times and result. Acknowledges: after the handler, fenced by
owner and epoch; a killed worker's job runs again. Counted when the finish is committed. Two figures
come from inside: the processor time of the server beside ours, and how long each exchange took.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import postgres
from benchmarks.systems import Announce, forge_postgres_rows
from benchmarks.systems.forge import ForgeSystem
from benchmarks.systems.timing import callers, span_async, trickle_async

BATCH = 1_000
ANSWER_SECONDS = 10.0
Link = tuple[Any, asyncio.AbstractEventLoop]


class ForgePostgresSystem(ForgeSystem):
    """One Forge on one database."""

    def __init__(self, directory: Path, _: str, announce: Announce) -> None:
        super().__init__(directory, postgres.address(directory), announce)
        self._meter = postgres.Meter(directory)
        self._runner = asyncio.Runner()
        self._links: list[Link] = []
        self._keep_links()

    def _keep_links(self) -> None:
        """Remember each connection that the driver opens, with its loop."""
        driver: Any = asyncpg
        plain: Callable[..., Awaitable[Any]] = driver.connect

        async def connect(*arguments: Any, **options: Any) -> Any:
            made = await plain(*arguments, **options)
            self._links.append((made, asyncio.get_running_loop()))
            return made

        driver.connect = connect

    def begin_server(self) -> None:
        self._meter.begin()

    def server_seconds(self) -> float:
        return self._meter.seconds()

    def handled(self) -> None:
        self._announce("handled")

    def enqueue(self, jobs: int) -> dict[str, Any]:
        """One awaited call after the other."""
        return self._runner.run(span_async(callers(1, jobs, self._app.noop.aenqueue), jobs))

    def enqueue_from_thread(self, jobs: int) -> dict[str, Any]:
        """The same from synchronous code."""
        return super().enqueue(jobs)

    def enqueue_bulk(self, jobs: int, batch: int = BATCH) -> dict[str, Any]:
        async def put() -> None:
            for _ in range(0, jobs, batch):
                await self._app.noop.aenqueue_many([()] * batch)

        return self._runner.run(span_async(put(), jobs))

    def enqueue_concurrent(self, jobs: int, callers: int) -> dict[str, Any]:
        return self._runner.run(self._concurrent(jobs // callers, callers))

    async def _concurrent(self, share: int, count: int) -> dict[str, Any]:
        return await span_async(callers(count, share, self._app.noop.aenqueue), share * count)

    def drain_timed(self, jobs: int) -> dict[str, Any]:
        """`drain`, and how many milliseconds each exchange that wanted jobs took."""
        jobs_of_store: Any = type(self._app.forge.store.jobs)
        plain: Callable[[Any, Any], Awaitable[Any]] = jobs_of_store.exchange
        took: list[float] = []

        async def timed(store: Any, request: Any) -> Any:
            started = time.perf_counter()
            answer = await plain(store, request)
            if request.want and answer.claims:
                took.append((time.perf_counter() - started) * 1_000)
            return answer

        jobs_of_store.exchange = timed
        try:
            return {**self.drain(jobs), "milliseconds": took}
        finally:
            jobs_of_store.exchange = plain

    def trickle(self, jobs: int, gap: float) -> dict[str, Any]:
        return {"calls": self._runner.run(trickle_async(self._app.stamp.aenqueue, jobs, gap))}

    def rows(self) -> dict[str, Any]:
        return dict(forge_postgres_rows.counts(self._directory))

    def durability(self) -> dict[str, Any]:
        """What one of our own connections answers: one that serves synchronous code."""
        self._app.forge.queue_of("nobody-has-this-kind")  # reads the store, over a connection
        for link, loop in reversed(self._links):
            if loop.is_running() and not link.is_closed():
                asked = link.fetchval("SHOW synchronous_commit")
                told = asyncio.run_coroutine_threadsafe(asked, loop).result(ANSWER_SECONDS)
                return {"synchronous_commit": told}
        raise LookupError("none of the connections that asyncpg opened for us is in use")

    def close(self) -> None:
        super().close()
        self._runner.close()


def open_system(directory: Path, synchronous: str, announce: Announce) -> ForgePostgresSystem:
    os.environ.setdefault("FORGE_LOG_LEVEL", "warning")
    return ForgePostgresSystem(directory, synchronous, announce)
