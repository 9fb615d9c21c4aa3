"""The worker of `pool`: `python -m benchmarks.measures.pool_worker FOLDER HOW JOBS` tells in JSON
how long the jobs took."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from benchmarks.measures.pool import CHILD, EACH, LIMIT_S, PICTURE, REQUEST, WARM
from benchmarks.systems import forge_rows
from forge_jobs import CMD_EXEC_KIND, WORKER_POOL_KIND, CmdExecHandler, Forge, WorkerPoolHandler
from forge_jobs.handlers import Command

QUEUE = "bench"


async def drain(store: Path, label: str, jobs: int) -> dict[str, float]:
    """One job to warm up, then all others; the store says when the first and the last ended."""
    forge = Forge(forge_rows.url(store, "default"))
    argv = [sys.executable, str(CHILD)]
    forge.register(WorkerPoolHandler(argv=argv, size=1), queue=QUEUE)
    forge.register(CmdExecHandler(commands={"resize": Command(argv[0], argv[1:])}), queue=QUEUE)
    kind, payload = {
        WARM: (WORKER_POOL_KIND, PICTURE),
        EACH: (CMD_EXEC_KIND, {"command": "resize", "stdin": REQUEST}),
    }[label]
    async with forge:
        line = [await forge.aenqueue(kind, payload) for _ in range(jobs + 1)]
        async with forge.worker(queues={QUEUE: 1}):
            await line[-1].aresult(timeout=LIMIT_S)
        first, last = [(await job.arefresh()).finished_at for job in (line[0], line[-1])]
    assert first is not None
    assert last is not None
    done = forge_rows.by_status(store).get("done", 0)
    return {"seconds": (last - first).total_seconds(), "done": done}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(drain(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
