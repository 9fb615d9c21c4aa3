"""No library: the least SQL that stores the steps of workflows, in batches of 100 inserts.

One connection, one commit per batch, into a table like `forge.steps`. Nothing is claimed, fenced or
finished. It is the limit of anybody who stores each step in a row of its own.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import postgres
from benchmarks.systems import Announce, peer
from benchmarks.systems.forge_loads import STEPS

SCHEMA = """
CREATE TABLE IF NOT EXISTS raw_steps (
    job bigint NOT NULL, began_at bigint NOT NULL, ended_at bigint NOT NULL,
    epoch integer NOT NULL, kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    value bytea, fingerprint bigint, PRIMARY KEY (job, name)
)
"""
INSERT = """
INSERT INTO raw_steps (job, began_at, ended_at, epoch, kind, name, value, fingerprint)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::integer[], $5::text[],
    $6::text[], $7::bytea[], $8::bigint[])
"""


class RawSteps(peer.Peer):
    """A bare loop."""

    async def open(self) -> None:
        self._link = await asyncpg.connect(self.url)
        await self._link.execute(SCHEMA)

    async def put(self) -> None:
        raise NotImplementedError("there are no jobs")

    async def put_stamp(self, sent: float) -> None:
        raise NotImplementedError("there is nobody to listen")

    async def put_many(self, jobs: int) -> None:
        """Nothing is claimed, so there is nothing to seed."""

    async def work(self, **_: Any) -> None:
        raise NotImplementedError("see drain")

    async def _drain(self, jobs: int, options: dict[str, Any]) -> dict[str, Any]:
        """As many workflows at once as a batch has rows, each with one step in every batch."""
        batch = options["batch"]
        insert = await self._link.prepare(INSERT)
        meter = postgres.Meter(self.store)
        meter.begin()
        self.announce("up", at=time.monotonic())
        cpu, started = time.process_time(), time.monotonic()
        for first in range(0, jobs, batch):
            workflows = range(first, min(first + batch, jobs))
            for number in range(STEPS):
                await insert.fetch(*self._columns(workflows, f"step#{number + 1}"))
        seconds, spent = time.monotonic() - started, time.process_time() - cpu
        return {
            "jobs": jobs * STEPS, "seconds": seconds, "cpu": spent, "server": meter.seconds()
        }  # fmt: skip

    def _columns(self, workflows: range, name: str) -> list[list[Any]]:
        now, rows = time.time_ns() // 1_000, len(workflows)
        return [
            list(workflows), [now] * rows, [now] * rows, [1] * rows, ["step"] * rows, [name] * rows,
            [b"null"] * rows, [None] * rows,
        ]  # fmt: skip

    async def show(self, setting: str) -> str:
        return await self._link.fetchval(f"SHOW {setting}")

    async def count_rows(self) -> dict[str, int]:
        """`finished`: workflows with all their steps."""
        finished = await self._link.fetchval(
            "SELECT count(*) FROM (SELECT FROM raw_steps GROUP BY job HAVING count(*) = $1) AS w",
            STEPS,
        )
        return {"waiting": 0, "finished": finished}


def open_system(directory: Path, synchronous: str, announce: Announce) -> RawSteps:
    return RawSteps(directory, synchronous, announce)
