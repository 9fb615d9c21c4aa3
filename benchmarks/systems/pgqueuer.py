"""PgQueuer: claims in batches, writes statuses in batches, listens for notifications.

Keeps: one line per change of state in its log table, with a payload no more; the job itself is
deleted. Acknowledges: after the handler; a job whose heartbeat stops is taken by another worker.
Run with asyncpg, uvloop (as its own command does), all tables durable, several batch sizes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Job

from benchmarks.systems import Announce, peer


class PgQueuerPeer(peer.Peer):
    """One connection to enqueue one by one and in bulk, a pool for many callers."""

    _worker: PgQueuer | None = None
    _pool: Any = None

    def loop_factory(self) -> Any:
        try:
            import uvloop
        except ImportError:
            return None
        return uvloop.new_event_loop

    async def open(self) -> None:
        self._link = await asyncpg.connect(self.url)
        self._queries = Queries(AsyncpgDriver(self._link))
        if not await self._queries.schema_is_installed():
            await self._queries.install()

    async def put(self) -> None:
        await self._queries.enqueue("noop", None)

    async def put_stamp(self, sent: float) -> None:
        await self._queries.enqueue("stamp", repr(sent).encode())

    async def put_many(self, jobs: int) -> None:
        await self._queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)

    def enqueue_pooled(self, jobs: int, callers: int) -> dict[str, Any]:
        """Many callers over a pool instead of one connection."""
        self.runner.run(self._use_pool())
        return self.enqueue_concurrent(jobs, callers)

    async def _use_pool(self) -> None:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(self.url, min_size=10, max_size=20)
            self._queries = Queries(AsyncpgPoolDriver(self._pool))

    async def work(self, batch: int = 10) -> None:
        link = await asyncpg.connect(self.url)
        self._worker = worker = PgQueuer(AsyncpgDriver(link))

        @worker.entrypoint("noop")
        async def noop(_: Job) -> None:
            await peer.noop()

        @worker.entrypoint("stamp")
        async def stamp(job: Job) -> None:
            await peer.stamp(float(job.payload or b"0"))

        await worker.run(batch_size=batch)
        await link.close()

    async def end(self) -> None:
        if self._worker is not None:
            self._worker.shutdown.set()
        await asyncio.sleep(0)

    async def show(self, setting: str) -> str:
        return await self._link.fetchval(f"SHOW {setting}")

    async def count_rows(self) -> dict[str, int]:
        waiting = await self._link.fetchval("SELECT count(*) FROM pgqueuer")
        finished = await self._link.fetchval(
            "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
        )
        return {"waiting": waiting, "finished": finished}


def open_system(directory: Path, synchronous: str, announce: Announce) -> PgQueuerPeer:
    return PgQueuerPeer(directory, synchronous, announce)
