"""Procrastinate: one statement per claim and per finish, both functions on the server.

Keeps: every job as a row, with its events. Acknowledges: after the handler; a job of a worker
without a heartbeat is found stalled and may be retried. Run with psycopg and a pool of 20,
concurrency 100.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import procrastinate

from benchmarks.systems import Announce, peer


class ProcrastinatePeer(peer.Peer):
    """One app."""

    async def open(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self.url, min_size=4, max_size=20)
        self._app = app = procrastinate.App(connector=connector)
        self._noop = app.task(name="noop")(peer.noop)
        self._stamp = app.task(name="stamp")(peer.stamp)
        await app.open_async()
        if await self._ask("SELECT to_regclass('procrastinate_jobs') IS NULL AS none", "none"):
            await app.schema_manager.apply_schema_async()
        self._working: asyncio.Task[None] | None = None

    async def _ask(self, query: str, column: str) -> Any:
        row = await self._app.connector.execute_query_one_async(query)
        return row[column]

    async def put(self) -> None:
        await self._noop.defer_async()

    async def put_stamp(self, sent: float) -> None:
        await self._stamp.defer_async(sent=sent)

    async def put_many(self, jobs: int) -> None:
        await self._noop.configure().batch_defer_async(*([{}] * jobs))

    async def work(self, **_: Any) -> None:
        self._working = asyncio.current_task()
        await self._app.run_worker_async(
            concurrency=100, install_signal_handlers=False, listen_notify=True, wait=True
        )

    async def end(self) -> None:
        if self._working is not None:
            self._working.cancel()

    async def show(self, setting: str) -> str:
        return await self._ask(f"SHOW {setting}", setting)

    async def count_rows(self) -> dict[str, int]:
        table = "procrastinate_jobs"
        finished = f"SELECT count(*) AS n FROM {table} WHERE status = 'succeeded'"
        waiting = f"SELECT count(*) AS n FROM {table} WHERE status IN ('todo', 'doing')"
        return {
            "waiting": await self._ask(waiting, "n"),
            "finished": await self._ask(finished, "n"),
        }


def open_system(directory: Path, synchronous: str, announce: Announce) -> ProcrastinatePeer:
    return ProcrastinatePeer(directory, synchronous, announce)
