"""The worker of `pool`: `python -m benchmarks.measures.pool_worker FOLDER HOW JOBS` tells in JSON
how long the jobs took."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from benchmarks.measures.pool import CHILD, EACH, LIMIT_S, PICTURE, REQUEST, WARM
from forge_jobs import CMD_EXEC_KIND, WORKER_POOL_KIND, CmdExecHandler, Forge, WorkerPoolHandler
from forge_jobs.handlers import Command

QUEUE = "bench"


async def drain(store: Path, label: str, jobs: int) -> dict[str, float]:
    """One job to warm up, then all others; the store says when the first and the last ended."""
    forge = Forge(f"sqlite:///{store / 'forge.db'}")
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
        kept = await forge.aready()
        ends = [await kept.jobs.get(job.id) for job in (line[0], line[-1])]
        counts = await kept.metrics.counts()
    first, last = (one.finished_at or 0 for one in ends if one is not None)
    done = sum(one.jobs for one in counts if one.status == "done")
    return {"seconds": (last - first) / 1e6, "done": done}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(drain(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
