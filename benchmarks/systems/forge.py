"""Forge Jobs itself, through its public names only.

Keeps: every finished job with its times and result. Acknowledges: after the handler, fenced by
owner and epoch; a killed worker's job runs again. Counted when the finish is committed. Levels:
`full` and `normal` for every transaction, `default` as without an option: FULL for transactions
that store a job, NORMAL for the rest.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.systems import Announce, forge_rows
from benchmarks.systems.forge_loads import LOADS
from benchmarks.systems.forge_pages import Pages
from benchmarks.systems.forge_steps import Steps
from benchmarks.systems.timing import span, trickle

CALL_LIMIT_SECONDS = 55.0
BATCH = 1_000


class ForgeSystem(Pages, Steps):
    """One Forge on one store."""

    def __init__(self, directory: Path, url: str, announce: Announce) -> None:
        os.environ["FORGE_URL"] = url
        from benchmarks.systems import forge_app  # reads FORGE_URL when imported

        self._app = forge_app
        self._directory = directory
        self._announce = announce
        self._keys = 0

    def begin_server(self) -> None:
        """Count what a server spends for us, if there is one."""

    def server_seconds(self) -> float:
        """What it has spent since."""
        return 0.0

    def handled(self) -> None:
        """The last handler was called; its finish may still be on its way."""

    def _put_many(self, jobs: int, kind: str = "noop") -> None:
        task = self._app.TASKS[kind]
        for first in range(0, jobs, BATCH):
            task.enqueue_many([()] * min(BATCH, jobs - first))

    def _put(self, jobs: int) -> None:
        for _ in range(jobs):
            self._app.noop.enqueue()

    def seed(self, jobs: int, kind: str = "noop", load: str = "", **options: Any) -> dict[str, Any]:
        if load:
            return LOADS[load].seed(self._app, jobs, **options)
        self._put_many(jobs, kind)
        return {}

    def seed_later(self, jobs: int) -> dict[str, Any]:
        """Jobs that come due long after the run."""
        self._app.TASKS["noop"].using(delay="30d").enqueue_many([()] * jobs)
        return {}

    def enqueue(self, jobs: int) -> dict[str, Any]:
        return span(lambda: self._put(jobs), jobs)

    def enqueue_awaited(self, jobs: int) -> dict[str, Any]:
        """One awaited call after the other on one event loop."""

        async def put() -> None:
            for _ in range(jobs):
                await self._app.noop.aenqueue()

        return span(lambda: asyncio.run(put()), jobs)

    def enqueue_bulk(self, jobs: int) -> dict[str, Any]:
        return span(lambda: self._put_many(jobs), jobs)

    def enqueue_keyed(self, jobs: int) -> dict[str, Any]:
        """One call after the other, each with a dedupe key that nobody has taken."""

        def put() -> None:
            for _ in range(jobs):
                self._keys += 1
                self._app.noop.using(dedupe_key=f"key-{self._keys}").enqueue()

        return span(put, jobs)

    def enqueue_concurrent(self, jobs: int, callers: int) -> dict[str, Any]:
        """Tasks of one event loop, each awaiting its own `aenqueue` after the other."""
        share = jobs // callers

        async def caller() -> None:
            for _ in range(share):
                await self._app.noop.aenqueue()

        async def everyone() -> None:
            await asyncio.gather(*(caller() for _ in range(callers)))

        return span(lambda: asyncio.run(everyone()), share * callers)

    def drain(
        self, jobs: int, skip: int = 0, load: str = "", due: float | None = None, **_: Any
    ) -> dict[str, Any]:
        """A worker in this process until `skip + jobs` handlers were called.

        The processor time is that of the last `jobs` of them, or, without `skip`, from the moment
        the worker is up. Jobs handled before that are told to the parent, which does not count
        them. `load`: whose handlers these are. `due`: the moment at which the jobs are due; the
        worker waits for it, and only then tells that it is up.
        """
        if load:
            LOADS[load].register(self._app)
        return asyncio.run(self._drain(jobs, skip, due))

    async def _drain(self, jobs: int, skip: int, due: float | None) -> dict[str, Any]:
        loop, reached = asyncio.get_running_loop(), asyncio.Event()
        cpu: dict[str, float] = {}

        def begin() -> None:
            self.begin_server()
            cpu["from"], cpu["begun"] = time.process_time(), time.monotonic()

        def end() -> None:
            cpu["to"], cpu["ended"] = time.process_time(), time.monotonic()
            cpu["server"] = self.server_seconds()
            loop.call_soon_threadsafe(self.handled)
            loop.call_soon_threadsafe(reached.set)

        tally = self._app.TALLY
        tally.begin({skip: begin, skip + jobs: end} if skip else {jobs: end})
        queues = [f"{self._app.QUEUE}:{self._app.SLOTS}"]
        async with self._app.forge.worker(queues=queues):
            if due is not None:
                left = due - time.time()
                if left < 0:
                    self._announce("up", late=True)
                    return {}
                await asyncio.sleep(left)
            before = tally.calls
            if not skip:
                begin()
            self._announce("up", at=time.monotonic(), handled=before)
            await asyncio.wait_for(reached.wait(), CALL_LIMIT_SECONDS)
        counted = jobs if skip else jobs - before
        spent = cpu["to"] - cpu["from"]
        taken = cpu["ended"] - cpu["begun"]
        return {"jobs": counted, "cpu": spent, "server": cpu["server"], "span": taken}

    def sleepers(self, jobs: int, callers: int) -> dict[str, Any]:
        """No store and no engine: tasks that only sleep 10 ms, again and again."""
        numbers = iter(range(jobs))

        async def sleeper() -> None:
            for _ in numbers:
                await asyncio.sleep(0.01)

        async def everyone() -> None:
            await asyncio.gather(*(sleeper() for _ in range(callers)))

        return span(lambda: asyncio.run(everyone()), jobs)

    def trickle(self, jobs: int, gap: float) -> dict[str, Any]:
        return {"calls": trickle(self._app.stamp.enqueue, jobs, gap)}

    def rows(self) -> dict[str, Any]:
        return dict(forge_rows.counts(self._directory))

    def close(self) -> None:
        self._app.forge.close()


def open_system(directory: Path, synchronous: str, announce: Announce) -> ForgeSystem:
    return ForgeSystem(directory, forge_rows.url(directory, synchronous), announce)
