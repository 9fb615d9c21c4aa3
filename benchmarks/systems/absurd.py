"""absurd: durable workflows in functions of the database, with a thin SDK.

Keeps: every task, run and checkpoint as a row, parameters and values as JSON; an event for ever,
and only the first of its name. Acknowledges: after the handler; a task whose claim has timed out
runs again. A step is one look-up of a name that is not in memory, and one call that stores it. Run
with the asynchronous SDK, one connection per process as it has no pool, its default poll interval
of 0.25 s, and the schema that its command line brings.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import absurdctl
from absurd_sdk import AsyncAbsurd
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from benchmarks import postgres
from benchmarks.systems import Announce, absurd_tasks, peer
from benchmarks.systems.absurd_tasks import QUEUE
from benchmarks.systems.forge_loads import STEPS

LOOK_SECONDS = 0.02
FINISHED = f"SELECT NOT EXISTS (SELECT 1 FROM absurd.t_{QUEUE} WHERE state <> 'completed')"
# Tasks with all their steps.
COMPLETE = f"""
SELECT count(*) FILTER (WHERE t.state <> 'completed'),
    count(*) FILTER (WHERE t.state = 'completed' AND c.steps = {STEPS})
FROM absurd.t_{QUEUE} t
LEFT JOIN (SELECT task_id, count(*) AS steps FROM absurd.c_{QUEUE} GROUP BY 1) AS c USING (task_id)
"""


class AbsurdPeer(peer.Peer):
    """One queue."""

    async def open(self) -> None:
        self._link: Any = await AsyncConnection.connect(self.url, autocommit=True)
        if await self._one("SELECT to_regnamespace('absurd') IS NULL"):
            await self._link.execute(absurdctl.BUNDLED_SCHEMA_SQL.encode())
            await AsyncAbsurd(self._link, queue_name=QUEUE).create_queue(QUEUE)
        self._app = absurd_tasks.register(AsyncAbsurd(self._link, queue_name=QUEUE))

    async def _row(self, query: str) -> Any:
        cursor = self._link.cursor(row_factory=tuple_row)
        await cursor.execute(query.encode())
        return await cursor.fetchone()

    async def _one(self, query: str) -> Any:
        return (await self._row(query))[0]

    async def put(self) -> None:
        await self._app.spawn("steps", {"steps": STEPS})

    async def put_stamp(self, sent: float) -> None:
        raise NotImplementedError("see send_events")

    async def put_many(self, jobs: int) -> None:
        """The SDK has no bulk call; in one transaction, because this is not timed."""
        async with self._link.transaction():
            for _ in range(jobs):
                await self.put()

    async def work(self, concurrency: int = 16, **_: Any) -> None:
        await self._app.start_worker(concurrency=concurrency)

    async def end(self) -> None:
        self._app.stop_worker()

    async def show(self, setting: str) -> str:
        return await self._one(f"SHOW {setting}")

    async def count_rows(self) -> dict[str, int]:
        waiting, finished = await self._row(COMPLETE)
        return {"waiting": waiting, "finished": finished}

    async def _drain(self, jobs: int, options: dict[str, Any]) -> dict[str, Any]:
        """Workers in processes of their own, until every task is completed."""
        context = multiprocessing.get_context("spawn")
        go, concurrency = context.Event(), options["concurrency"]
        pipes = [context.Pipe() for _ in range(options["processes"])]
        workers = [
            context.Process(
                target=absurd_tasks.run_worker,
                args=(self.url, concurrency, go, theirs),
                daemon=True,
            )
            for _, theirs in pipes
        ]
        for worker in workers:
            worker.start()
        try:
            for mine, _ in pipes:
                self._receive(mine, "up")
            meter = postgres.Meter(self.store)
            meter.begin()
            self.announce("up", at=time.monotonic())
            started = time.monotonic()
            go.set()
            await self._finished(jobs)
            seconds, server = time.monotonic() - started, meter.seconds()
            for mine, _ in pipes:
                mine.send("stop")
            spent = sum(self._receive(mine, "ended") for mine, _ in pipes)
        finally:
            for worker in workers:
                worker.join(10)
                worker.kill()
        return {"jobs": jobs * STEPS, "seconds": seconds, "cpu": spent, "server": server}

    def _receive(self, pipe: Any, word: str) -> Any:
        if not pipe.poll(peer.CALL_LIMIT_SECONDS):
            raise TimeoutError(f"absurd: no worker is {word}")
        said, value = pipe.recv()
        assert said == word, said
        return value

    async def _finished(self, jobs: int) -> None:
        deadline = time.monotonic() + peer.CALL_LIMIT_SECONDS
        while not await self._one(FINISHED):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{jobs} tasks are not completed: {await self.count_rows()}")
            await asyncio.sleep(LOOK_SECONDS)

    # ------------------------------------------------------------------- one workflow at a time

    def lone(self, steps: int) -> dict[str, Any]:
        """Seconds per step of a workflow that runs alone."""
        return self.runner.run(self._alone("lone", {"steps": steps}, "lone"))

    def resume(self, checkpoints: int, times: int) -> dict[str, Any]:
        """Milliseconds from the claim of a workflow with so many checkpoints to its next step."""
        absurd_tasks.watch_claims(self._app)
        return self.runner.run(
            self._alone("resume", {"steps": checkpoints, "times": times}, "resumed")
        )

    async def _alone(self, task: str, parameters: dict[str, int], noted: str) -> dict[str, Any]:
        absurd_tasks.NOTED.clear()
        await self._app.spawn(task, parameters)
        working = asyncio.create_task(self.work(concurrency=1))
        try:
            await asyncio.wait_for(absurd_tasks.NOTED.ended(), peer.CALL_LIMIT_SECONDS)
        finally:
            await self._stop(working)
        return {noted: absurd_tasks.NOTED.values}

    # -------------------------------------------------------------------------------- events

    def park(self, jobs: int) -> dict[str, Any]:
        """Store workflows that wait for an event of their own, then take a step."""
        for number in range(jobs):
            self.runner.run(self._app.spawn("wait", {"event": f"go-{number}"}))
        return {}

    def send_events(self, jobs: int, gap: float) -> dict[str, Any]:
        numbers = iter(range(jobs))

        async def send(sent: float) -> None:
            await self._link.execute(
                "SELECT absurd.emit_event(%s, %s, %s)",
                (QUEUE, f"go-{next(numbers)}", json.dumps(sent)),
            )

        return {"calls": self.runner.run(peer.trickle_async(send, jobs, gap))}


def open_system(directory: Path, synchronous: str, announce: Announce) -> AbsurdPeer:
    return AbsurdPeer(directory, synchronous, announce)
