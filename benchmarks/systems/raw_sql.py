"""No library: the least SQL that claims, finishes into a history table and loses nothing.

One connection, batches of 500, one statement per batch that finishes the last batch, guarded by
owner and epoch, and claims the next. It is the ceiling for anybody who keeps what we keep, and has
no retries, leases, time limits, results or metrics.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import postgres
from benchmarks.systems import Announce, peer

SCHEMA = """
CREATE TABLE IF NOT EXISTS raw_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_at timestamptz NOT NULL DEFAULT now(),
    enqueued_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz, owner bigint,
    priority integer NOT NULL DEFAULT 0, epoch integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0, status text NOT NULL DEFAULT 'pending',
    queue text NOT NULL, kind text NOT NULL, payload bytea
) WITH (fillfactor = 90);
CREATE INDEX IF NOT EXISTS raw_claim ON raw_jobs (queue, priority, run_at, id)
    WHERE status = 'pending';
CREATE TABLE IF NOT EXISTS raw_history (
    id bigint PRIMARY KEY, run_at timestamptz, enqueued_at timestamptz, started_at timestamptz,
    owner bigint, priority integer, epoch integer, attempts integer, status text, queue text,
    kind text, payload bytea, finished_at timestamptz NOT NULL DEFAULT now()
);
"""
FINISH = """
WITH gone AS (
    DELETE FROM raw_jobs j USING unnest($1::bigint[], $2::integer[]) AS f(id, epoch)
    WHERE j.id = f.id AND j.epoch = f.epoch AND j.owner = 1 RETURNING j.*
),
kept AS (
    INSERT INTO raw_history (id, run_at, enqueued_at, started_at, owner, priority, epoch,
        attempts, status, queue, kind, payload)
    SELECT id, run_at, enqueued_at, started_at, owner, priority, epoch, attempts, 'done', queue,
        kind, payload FROM gone
)
"""
CLAIM = """
UPDATE raw_jobs SET status = 'running', owner = 1, epoch = epoch + 1, attempts = attempts + 1,
    started_at = now()
WHERE id = ANY (ARRAY(
    SELECT id FROM raw_jobs WHERE queue = 'bench' AND status = 'pending'
    ORDER BY priority, run_at, id LIMIT $3 FOR UPDATE SKIP LOCKED))
RETURNING id, epoch, kind, payload
"""


class RawSql(peer.Peer):
    """A bare loop."""

    async def open(self) -> None:
        self._link = await asyncpg.connect(self.url)
        await self._link.execute(SCHEMA)

    async def put(self) -> None:
        await self._link.execute(
            "INSERT INTO raw_jobs (queue, kind, payload) VALUES ('bench', 'noop', $1)", b"{}"
        )

    async def put_stamp(self, sent: float) -> None:
        raise NotImplementedError("there is nobody to listen")

    async def put_many(self, jobs: int) -> None:
        await self._link.execute(
            "INSERT INTO raw_jobs (queue, kind, payload)"
            " SELECT 'bench', 'noop', p FROM unnest($1::bytea[]) AS p",
            [b"{}"] * jobs,
        )

    async def work(self, **_: Any) -> None:
        raise NotImplementedError("see drain")

    async def _drain(self, jobs: int, options: dict[str, Any]) -> dict[str, Any]:
        """Counted when the last finish is committed, as ours."""
        batch = options.get("batch", 500)
        fused = await self._link.prepare(FINISH + CLAIM)
        meter = postgres.Meter(self.store)
        meter.begin()
        self.announce("up", at=time.monotonic())
        cpu, started = time.process_time(), time.monotonic()
        ids: list[int] = []
        epochs: list[int] = []
        handled = 0
        while True:
            claimed = await fused.fetch(ids, epochs, batch)
            if not claimed:
                break
            ids = [row[0] for row in claimed]
            epochs = [row[1] for row in claimed]
            handled += len(claimed)
        seconds, spent = time.monotonic() - started, time.process_time() - cpu
        server = meter.seconds()
        return {"jobs": handled, "seconds": seconds, "cpu": spent, "server": server}

    async def show(self, setting: str) -> str:
        return await self._link.fetchval(f"SHOW {setting}")

    async def count_rows(self) -> dict[str, int]:
        return {
            "waiting": await self._link.fetchval("SELECT count(*) FROM raw_jobs"),
            "finished": await self._link.fetchval("SELECT count(*) FROM raw_history"),
        }


def open_system(directory: Path, synchronous: str, announce: Announce) -> RawSql:
    return RawSql(directory, synchronous, announce)
