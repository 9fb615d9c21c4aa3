"""``python -m tests.gateway.fake.dying_demo FOLDER``: a demo that dies while it answers."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from telegram_gateway.demo import DemoEnvironment
from telegram_gateway.handlers.echo import Echo

LIFE_S = 60


async def answer(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def live(folder: Path) -> None:
    async with DemoEnvironment(folder).running() as stage:
        stage.say("echo", "before the end")
        await asyncio.sleep(LIFE_S)


if __name__ == "__main__":
    Echo.answer = answer
    asyncio.run(live(Path(sys.argv[1])))
