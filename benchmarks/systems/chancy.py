"""Chancy: claims in batches, writes the ends of the last second together.

Keeps: every job as a row until its pruner takes it. Acknowledges: after the handler; jobs of a
worker without a heartbeat are recovered. Run with its asyncio executor, concurrency 100, eager
polling (a new look after every end) and notifications; the default plugins are on.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from chancy import Chancy, Job, Queue, Worker

from benchmarks.systems import Announce, peer

QUEUE = "bench"
NOOP = "benchmarks.systems.peer.noop"
STAMP = "benchmarks.systems.peer.stamp"


class ChancyPeer(peer.Peer):
    """One app."""

    linger_s = 2.0
    _worker: Any = None

    async def open(self) -> None:
        log = logging.getLogger("chancy")
        log.setLevel(logging.ERROR)
        self._app = Chancy(
            self.url, log=log, min_connection_pool_size=4, max_connection_pool_size=20
        )
        await self._app.pool.open()
        await self._app.migrate()
        queue = Queue(
            QUEUE,
            concurrency=100,
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await self._app.declare(queue, upsert=True)

    async def put(self) -> None:
        await self._app.push(Job(func=NOOP, queue=QUEUE))

    async def put_stamp(self, sent: float) -> None:
        await self._app.push(Job(func=STAMP, queue=QUEUE, kwargs={"sent": sent}))

    async def put_many(self, jobs: int) -> None:
        async for _ in self._app.push_many([Job(func=NOOP, queue=QUEUE) for _ in range(jobs)]):
            pass

    async def work(self, **_: Any) -> None:
        self._worker = Worker(self._app, register_signal_handlers=False)
        async with self._worker as worker:
            await worker.wait_for_shutdown()

    async def end(self) -> None:
        if self._worker is not None:
            await self._worker.stop()

    async def _ask(self, query: str) -> Any:
        async with self._app.pool.connection() as link:
            found = await (await link.execute(query.encode())).fetchone()
            assert found is not None
            return found[0]

    async def show(self, setting: str) -> str:
        return await self._ask(f"SHOW {setting}")

    async def count_rows(self) -> dict[str, int]:
        waiting = "SELECT count(*) FROM chancy_jobs WHERE state <> 'succeeded'"
        finished = "SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'"
        return {"waiting": await self._ask(waiting), "finished": await self._ask(finished)}


def open_system(directory: Path, synchronous: str, announce: Announce) -> ChancyPeer:
    return ChancyPeer(directory, synchronous, announce)
