"""DBOS: workflows as plain functions, each step one row and two transactions.

Keeps: the status of each workflow, its input and output, and the name, output and times of each
step, pickled. Acknowledges: after the workflow; one that was interrupted is recovered by the next
process of the same version. A sleep or `recv` stays in the memory of the process. Run with
LISTEN/NOTIFY, no limit of threads (its default), a pool of 20 connections (its default), and queues
that are polled every 0.05 s instead of every second. On SQLite at its own level, with the write-
ahead log turned on, which favours it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy
from dbos import DBOS, DBOSClient

from benchmarks import postgres
from benchmarks.systems import Announce, dbos_workflows, peer
from benchmarks.systems.dbos_workflows import NOTED
from benchmarks.systems.forge_loads import STEPS
from benchmarks.systems.timing import trickle

QUEUE = "bench"
SLOTS = 100
POLL_SECONDS = 0.05
SETTLE_SECONDS = 1.5
LIMIT = peer.CALL_LIMIT_SECONDS
LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
# Workflows with all their steps.
COMPLETE = (
    "SELECT count(CASE WHEN w.status <> 'SUCCESS' THEN 1 END),"
    f" count(CASE WHEN w.status = 'SUCCESS' AND s.steps = {STEPS} THEN 1 END)"
    " FROM {schema}workflow_status w LEFT JOIN (SELECT workflow_uuid, count(*) AS steps"
    " FROM {schema}operation_outputs GROUP BY 1) AS s ON s.workflow_uuid = w.workflow_uuid"
)
# A workflow in `recv` has taken the time of its end first, as a step.
PARKED = "SELECT count(*) FROM {schema}operation_outputs WHERE function_name = 'DBOS.sleep'"


class DbosPeer:
    """One system database, on Postgres or SQLite."""

    def __init__(self, directory: Path, synchronous: str, announce: Announce) -> None:
        logging.disable(logging.WARNING)
        self._store, self._announce = directory, announce
        self._on_server = synchronous == "postgres"
        if self._on_server:
            self._url, self._schema = postgres.address(directory), "dbos."
        elif synchronous == "full":
            self._url, self._schema = f"sqlite:///{directory / 'dbos.db'}", ""
        else:
            raise ValueError("DBOS on SQLite commits with synchronous FULL only")
        self._meter = postgres.Meter(directory) if self._on_server else None
        self._runner = asyncio.Runner()
        self._instance: Any = None
        if not self._migrated():
            DBOS.migrate(self._url)
            if not self._on_server:
                with sqlite3.connect(directory / "dbos.db") as link:
                    link.execute("PRAGMA journal_mode = WAL")
        self._client = DBOSClient(system_database_url=self._url)

    def _migrated(self) -> bool:
        if not self._on_server:
            return (self._store / "dbos.db").exists()
        found = postgres.ask(self._store, "SELECT to_regclass('dbos.workflow_status') IS NOT NULL")
        return found[0][0]

    async def _launch(self, *, listen: bool = False) -> None:
        """On the running loop, which then runs the workflows. `listen`: to the queue as well."""
        if self._instance is not None:
            return
        self._instance = DBOS(
            config={
                "name": "bench",
                "system_database_url": self._url,
                "application_version": "bench",
                "use_listen_notify": True,
                "log_level": "CRITICAL",
            }
        )
        if not listen:
            DBOS.listen_queues([])
        DBOS.launch()
        await asyncio.sleep(0)

    # ------------------------------------------------------------------------------ throughput

    def seed(self, jobs: int, way: str = "queue") -> dict[str, Any]:
        """Only workflows of a queue can be stored before a process runs them."""
        if way == "queue":
            # A queue is registered by a process that was launched.
            self._runner.run(self._register_queue())
            for _ in range(jobs):
                self._client.enqueue({"queue_name": QUEUE, "workflow_name": "steps"}, STEPS)
        return {}

    async def _register_queue(self) -> None:
        await self._launch()
        await DBOS.register_queue_async(
            QUEUE, worker_concurrency=SLOTS, polling_interval_sec=POLL_SECONDS
        )

    def drain(self, jobs: int, way: str = "queue") -> dict[str, Any]:
        return self._runner.run(self._drain(jobs, way))

    async def _drain(self, jobs: int, way: str) -> dict[str, Any]:
        if way == "start":
            await self._launch()
        if self._meter is not None:
            self._meter.begin()
        cpu, started = time.process_time(), time.monotonic()
        self._announce("up", at=started)
        if way == "start":
            await asyncio.wait_for(self._start_all(jobs), LIMIT)
        else:
            await self._launch(listen=True)
            await self._finished()
        seconds, spent = time.monotonic() - started, time.process_time() - cpu
        server = self._meter.seconds() if self._meter is not None else 0.0
        return {"jobs": jobs * STEPS, "seconds": seconds, "cpu": spent, "server": server}

    async def _start_all(self, jobs: int) -> None:
        """As many at once as others have slots."""
        numbers = iter(range(jobs))

        async def start() -> None:
            for _ in numbers:
                handle = await DBOS.start_workflow_async(dbos_workflows.steps, STEPS)
                await handle.get_result()

        await asyncio.gather(*(start() for _ in range(SLOTS)))

    async def _finished(self) -> None:
        deadline = time.monotonic() + LIMIT
        while self.rows()["waiting"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"workflows are not finished: {self.rows()}")
            await asyncio.sleep(0.02)

    def _ask(self, query: str) -> Any:
        with self._client._sys_db.engine.connect() as link:  # pyright: ignore[reportPrivateUsage]
            return link.execute(sqlalchemy.text(query.format(schema=self._schema))).fetchone()

    def rows(self) -> dict[str, Any]:
        waiting, finished = self._ask(COMPLETE)
        return {"waiting": waiting, "finished": finished}

    def durability(self) -> dict[str, Any]:
        """Read back on a connection of its own pool."""
        if self._on_server:
            return {"synchronous_commit": self._ask("SHOW synchronous_commit")[0]}
        level, journal = self._ask("PRAGMA synchronous")[0], self._ask("PRAGMA journal_mode")[0]
        return {"synchronous": LEVELS[level], "journal": journal}

    # ------------------------------------------------------------------- one workflow at a time

    def lone(self, steps: int) -> dict[str, Any]:
        """Seconds per step of a workflow that runs alone."""

        async def run() -> None:
            await self._launch()
            handle = await DBOS.start_workflow_async(dbos_workflows.lone, steps)
            await asyncio.wait_for(handle.get_result(), LIMIT)

        NOTED.clear()
        self._runner.run(run())
        return {"lone": NOTED.values}

    def interrupt(self, checkpoints: int) -> dict[str, Any]:
        """A workflow with so many checkpoints, which this process leaves behind when it ends."""

        async def run() -> None:
            await self._launch()
            await DBOS.start_workflow_async(dbos_workflows.resume, checkpoints)
            await asyncio.wait_for(NOTED.ended(), LIMIT)

        NOTED.clear()
        self._runner.run(run())
        return {}

    def resume(self) -> dict[str, Any]:
        """Milliseconds from the claim of the recovered workflow to its next step."""

        async def run() -> None:
            await self._launch()
            await asyncio.wait_for(NOTED.ended(), LIMIT)

        NOTED.clear()
        dbos_workflows.watch_claims()
        self._runner.run(run())
        return {"resumed": NOTED.values}

    # -------------------------------------------------------------------------- waiting workflows

    def put_to_sleep(self, jobs: int) -> dict[str, Any]:
        """Memory of this process before and after it holds so many sleeping workflows."""
        return self._runner.run(self._put_to_sleep(jobs))

    async def _put_to_sleep(self, jobs: int) -> dict[str, Any]:
        await self._launch()
        # The threads and connections that the workflows need are there before.
        await self._start_all(2 * SLOTS)
        await asyncio.sleep(SETTLE_SECONDS)
        process = psutil.Process()
        before = process.memory_info().rss
        room = asyncio.Semaphore(SLOTS)

        async def start() -> None:
            async with room:
                await DBOS.start_workflow_async(dbos_workflows.sleep)

        await asyncio.gather(*(start() for _ in range(jobs)))
        deadline = time.monotonic() + LIMIT
        while self._ask(PARKED)[0] < jobs and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_SECONDS)
        return {
            "before": before,
            "after": process.memory_info().rss,
            "parked": self._ask(PARKED)[0],
        }

    def park(self, jobs: int) -> dict[str, Any]:
        """The worker starts them itself: see listen."""
        return {}

    def listen(self, stamps: str, jobs: int = 0) -> dict[str, Any]:
        """Hold workflows that wait for a message until a file beside the stamps says stop."""
        peer.STAMPS[:] = [Path(stamps)]
        self._runner.run(self._listen(Path(stamps + peer.STOP_SUFFIX), jobs))
        return {}

    async def _listen(self, stop: Path, jobs: int) -> None:
        await self._launch()
        for number in range(jobs):
            await dbos_workflows.start_waiting(f"go-{number}")
        self._announce("up")
        limit = time.monotonic() + LIMIT
        while not stop.exists() and time.monotonic() < limit:
            await asyncio.sleep(0.05)

    def send_events(self, jobs: int, gap: float) -> dict[str, Any]:
        numbers = iter(range(jobs))

        def send(sent: float) -> None:
            self._client.send(f"go-{next(numbers)}", sent)

        return {"calls": trickle(send, jobs, gap)}


def open_system(directory: Path, synchronous: str, announce: Announce) -> DbosPeer:
    return DbosPeer(directory, synchronous, announce)
