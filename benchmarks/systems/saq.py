"""SAQ on Postgres: claims in batches, one update per job at its end.

Keeps: finished rows for ten minutes. Acknowledges: after the handler; stuck jobs are swept after
their time limit. It has no bulk call that saves commits, so bulk is one call after the other. Run
with concurrency 100 and its own pool of 4 to 20 connections.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saq import Job, Worker
from saq.queue.postgres import PostgresQueue

from benchmarks.systems import Announce, peer


async def noop(_: Any) -> None:
    await peer.noop()


async def stamp(_: Any, *, sent: float) -> None:
    await peer.stamp(sent)


class SaqPeer(peer.Peer):
    """One queue."""

    linger_s = 1.0
    _worker: Any = None

    async def open(self) -> None:
        self._queue = PostgresQueue.from_url(self.url)
        await self._queue.connect()

    async def put(self) -> None:
        await self._queue.enqueue(Job("noop"))

    async def put_stamp(self, sent: float) -> None:
        await self._queue.enqueue("stamp", sent=sent)

    async def put_many(self, jobs: int) -> None:
        share = -(-jobs // 20)
        counts = [min(share, jobs - first) for first in range(0, jobs, share)]

        async def some(count: int) -> None:
            for _ in range(count):
                await self.put()

        await asyncio.gather(*map(some, counts))

    async def work(self, **_: Any) -> None:
        self._worker = Worker(self._queue, functions=[noop, stamp], concurrency=100)
        self._worker.SIGNALS = []
        await self._worker.start()

    async def end(self) -> None:
        if self._worker is not None:
            self._worker.event.set()

    async def _ask(self, query: str) -> Any:
        async with self._queue.pool.connection() as link:
            found = await (await link.execute(query.encode())).fetchone()
            assert found is not None
            return found[0]

    async def show(self, setting: str) -> str:
        return await self._ask(f"SHOW {setting}")

    async def count_rows(self) -> dict[str, int]:
        waiting = "SELECT count(*) FROM saq_jobs WHERE status IN ('queued', 'active', 'new')"
        finished = "SELECT count(*) FROM saq_jobs WHERE status = 'complete'"
        return {"waiting": await self._ask(waiting), "finished": await self._ask(finished)}


def open_system(directory: Path, synchronous: str, announce: Announce) -> SaqPeer:
    return SaqPeer(directory, synchronous, announce)
