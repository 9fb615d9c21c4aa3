"""``python -m tests.gateway.fake.killed_demo FOLDER``: a demo that is killed in its handler."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from telegram_gateway.demo import DemoEnvironment
from telegram_gateway.handlers.echo import Echo

RUN_S = 60


async def answer(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def run_demo(folder: Path) -> None:
    async with DemoEnvironment(folder).running() as demo:
        demo.say("echo", "before the end")
        await asyncio.sleep(RUN_S)


if __name__ == "__main__":
    Echo.answer = answer
    asyncio.run(run_demo(Path(sys.argv[1])))
