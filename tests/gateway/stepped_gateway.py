"""``python -m tests.gateway.stepped_gateway START``: a gateway process with a controlled clock.

Each line on standard input is the number of microseconds since START. The gateway runs all jobs
that are due then and prints how many were done. It exits at the end of its input.
"""

import asyncio
import os
import sys
from datetime import datetime, timedelta

from forge_jobs.testing import frozen
from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway


async def run_gateway(start: datetime) -> None:
    settings, bots, _ = load(os.environ)
    gateway = Gateway(settings, bots)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=start) as time:
        async with gateway.running(workers=False):
            print("ready", flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                time.move_to(start + timedelta(microseconds=int(line)))
                report = await gateway.forge.drain()
                print(report.done, flush=True)


if __name__ == "__main__":
    asyncio.run(run_gateway(datetime.fromisoformat(sys.argv[1])))
