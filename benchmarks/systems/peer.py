"""What the Postgres peers have in common: an event loop that outlives a command, and the counting.

A peer is counted when its handler is called: what it still has to write then is in its favour. Each
module says what its peer keeps and acknowledges, and with which settings it is run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from benchmarks import postgres
from benchmarks.systems import Announce
from benchmarks.systems.timing import STOP_SUFFIX, callers, span_async, trickle_async

CALL_LIMIT_SECONDS = 55.0
BATCH = 1_000


class CallCounter:
    """Calls so far. `reached` is set, and the instant kept, when there were as many as wanted."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, wanted: int) -> None:
        self.calls = 0
        self.wanted = wanted
        self.ended = 0.0
        self.reached = asyncio.Event()

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.wanted:
            self.ended = time.monotonic()
            self.reached.set()


TALLY = CallCounter()
# Handlers of some peers are found by their import path, so this is a global of the module.
STAMPS: list[Path] = []


async def noop() -> None:
    """The handler every system runs."""
    TALLY.count()


async def stamp(sent: float) -> None:
    """The handler of the idle measure: one line per arrival."""
    milliseconds = (time.monotonic() - sent) * 1_000
    with STAMPS[0].open("a") as stamps:
        stamps.write(f"{milliseconds!r}\n")


class Peer(ABC):
    """One peer on one database.

    `linger_s`: how long its worker is left alone before it is stopped, to write what it has left.
    """

    linger_s = 0.0

    def __init__(self, directory: Path, _: str, announce: Announce) -> None:
        logging.disable(logging.WARNING)
        self.store = directory
        self.url = postgres.address(directory)
        self.announce = announce
        self.runner = asyncio.Runner(loop_factory=self.loop_factory())
        self.runner.run(self.open())

    def loop_factory(self) -> Any:
        """How to make an event loop; None is asyncio's own way."""
        return None

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create the tables."""

    @abstractmethod
    async def put(self) -> None:
        """Enqueue one no-op."""

    @abstractmethod
    async def put_stamp(self, sent: float) -> None:
        """Enqueue one job that notes its arrival."""

    @abstractmethod
    async def put_many(self, jobs: int) -> None:
        """Enqueue some no-ops at once, the fastest way there is."""

    @abstractmethod
    async def work(self, **options: Any) -> None:
        """Run jobs with 100 slots until cancelled."""

    @abstractmethod
    async def show(self, setting: str) -> str:
        """What a setting is on a connection of the peer's own."""

    @abstractmethod
    async def count_rows(self) -> dict[str, int]:
        """`waiting` and `finished`."""

    # ------------------------------------------------------------------------------- the verbs

    def seed(self, jobs: int) -> dict[str, Any]:
        self.runner.run(self._put_many(jobs))
        return {}

    def enqueue(self, jobs: int) -> dict[str, Any]:
        return self.runner.run(span_async(callers(1, jobs, self.put), jobs))

    def enqueue_bulk(self, jobs: int) -> dict[str, Any]:
        return self.runner.run(span_async(self._put_many(jobs), jobs))

    def enqueue_concurrent(self, jobs: int, callers: int) -> dict[str, Any]:
        return self.runner.run(self._concurrent(jobs // callers, callers))

    def drain(self, jobs: int, **options: Any) -> dict[str, Any]:
        return self.runner.run(self._drain(jobs, options))

    def listen(self, stamps: str, **options: Any) -> dict[str, Any]:
        """Run a worker that stamps arrivals until a file beside the stamps says stop."""
        STAMPS[:] = [Path(stamps)]
        self.runner.run(self._listen(Path(stamps + STOP_SUFFIX), options))
        return {}

    def trickle(self, jobs: int, gap: float) -> dict[str, Any]:
        return {"calls": self.runner.run(trickle_async(self.put_stamp, jobs, gap))}

    def rows(self) -> dict[str, Any]:
        return dict(self.runner.run(self.count_rows()))

    def durability(self) -> dict[str, Any]:
        return {"synchronous_commit": self.runner.run(self.show("synchronous_commit"))}

    async def _put_many(self, jobs: int) -> None:
        for first in range(0, jobs, BATCH):
            await self.put_many(min(BATCH, jobs - first))

    async def _concurrent(self, share: int, count: int) -> dict[str, Any]:
        return await span_async(callers(count, share, self.put), share * count)

    async def _drain(self, jobs: int, options: dict[str, Any]) -> dict[str, Any]:
        TALLY.begin(jobs)
        meter = postgres.Meter(self.store)
        meter.begin()
        self.announce("up", at=time.monotonic())
        cpu, started = time.process_time(), time.monotonic()
        working = asyncio.create_task(self.work(**options))
        reached = asyncio.create_task(TALLY.reached.wait())
        try:
            await asyncio.wait(
                (working, reached),
                timeout=CALL_LIMIT_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not reached.done():
                if working.done():
                    working.result()
                raise TimeoutError(f"{TALLY.calls} of {jobs} jobs in {CALL_LIMIT_SECONDS:.0f} s")
            spent, server = time.process_time() - cpu, meter.seconds()
        finally:
            reached.cancel()
            await self._stop(working)
        seconds = TALLY.ended - started
        return {"jobs": jobs, "seconds": seconds, "cpu": spent, "server": server}

    async def _listen(self, stop: Path, options: dict[str, Any]) -> None:
        self.announce("up")
        working = asyncio.create_task(self.work(**options))
        limit = time.monotonic() + CALL_LIMIT_SECONDS
        try:
            while not stop.exists() and not working.done() and time.monotonic() < limit:
                await asyncio.sleep(0.05)
            if working.done():
                working.result()
        finally:
            await self._stop(working)

    async def _stop(self, working: asyncio.Task[None]) -> None:
        """End a worker in good order, so that it writes what it has left."""
        await asyncio.sleep(self.linger_s)
        await self.end()
        _, left = await asyncio.wait([working], timeout=10)
        for task in left:
            task.cancel()
            await asyncio.wait([task], timeout=5)

    async def end(self) -> None:
        """Ask the worker to stop; it has ten seconds."""
        return
