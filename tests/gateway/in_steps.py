"""``python -m tests.gateway.in_steps START``: a gateway process whose time is told to it.

Each line on standard input is how many microseconds have passed since START; the gateway does what
is due then and answers with a line. It ends with its input.
"""

import asyncio
import os
import sys
from datetime import datetime, timedelta

from forge_jobs.testing import frozen
from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway


async def live(start: datetime) -> None:
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
    asyncio.run(live(datetime.fromisoformat(sys.argv[1])))
