"""``python -m tests.gateway.killed_at_commit before|after KIND STATUS``: a gateway with a kill.

Its workers run until an exchange finishes a job of that kind with that status. The process kills
itself with SIGKILL right before or right after the commit, so that no cleanup runs.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from forge_jobs.backends.postgres.jobs import PostgresJobs
from forge_jobs.backends.sqlite.jobs import SqliteJobs
from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway

RUN_S = 60


def install_kill(store: Any, moment: str, kind: str, status: str) -> None:
    whole = store.exchange

    async def exchange(self: Any, request: Any) -> Any:
        fits = any(one.kind.startswith(kind) and one.status == status for one in request.finish)
        if fits and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await whole(self, request)
        if fits:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    store.exchange = exchange


async def run_gateway() -> None:
    settings, bots, _ = load(os.environ)
    async with Gateway(settings, bots).running():
        await asyncio.sleep(RUN_S)


if __name__ == "__main__":
    for jobs in (SqliteJobs, PostgresJobs):
        install_kill(jobs, *sys.argv[1:4])
    asyncio.run(run_gateway())
