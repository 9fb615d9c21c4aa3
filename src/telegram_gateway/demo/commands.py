"""``telegram-gateway demo`` and ``fake-telegram``: until a signal, or Ctrl-C, ends them."""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from telegram_gateway.fake import LeapClock, fake_telegram
from telegram_gateway.masking import log_to

from .environment import DemoEnvironment

Say = Callable[[str], None]


async def run_demo(port: int, folder: Path | None, say: Say) -> None:
    """The whole demo; without a folder what it stores goes away with it."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-demo-"))
            folder = Path(made)
        else:
            folder.mkdir(parents=True, exist_ok=True)
        async with DemoEnvironment(folder, port=port).running() as stage:
            log_to(None, stage.gateway.mask, level="warning", as_json=False)
            say(f"chat      {stage.address}")
            say(f"jobs      {stage.address}/jobs/")
            say(f"telegram  {stage.fake.base} (a fake one, for this demo)")
            say("Ctrl-C ends it.")
            await _until_signal()


async def run_fake(host: str, port: int, say: Say) -> None:
    """A fake Telegram alone."""
    async with fake_telegram(host=host, port=port, clock=LeapClock()) as fake:
        say(f"export TELEGRAM_API_BASE={fake.base}")
        say(f"Act as a user: POST {fake.base}/control/bots/ID/messages (docs/gateway-demo.md).")
        say("Every token of the usual shape is a bot. Ctrl-C ends it.")
        await _until_signal()


async def _until_signal() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        await ended.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
