"""``python -m tests.gateway.dying before|after KIND STATUS``: a gateway that kills itself.

Its workers run until an exchange ends a job of that kind with that status; the process dies by
SIGKILL right before or right after the commit, so that nothing is tidied up.
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

LIFE_S = 60


def arm(store: Any, moment: str, kind: str, status: str) -> None:
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


async def live() -> None:
    settings, bots, _ = load(os.environ)
    async with Gateway(settings, bots).running():
        await asyncio.sleep(LIFE_S)


if __name__ == "__main__":
    for jobs in (SqliteJobs, PostgresJobs):
        arm(jobs, *sys.argv[1:4])
    asyncio.run(live())
