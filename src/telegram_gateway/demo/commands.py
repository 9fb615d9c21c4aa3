"""``telegram-gateway demo`` and ``fake-telegram``: run until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from telegram_gateway.fake import LeapClock, fake_telegram
from telegram_gateway.masking import configure_logging

from .environment import DemoEnvironment

Print = Callable[[str], None]


async def run_demo(port: int, folder: Path | None, print_line: Print) -> None:
    """Run the demo; without a folder, its database is deleted at exit."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-demo-"))
            folder = Path(temporary)
        else:
            folder.mkdir(parents=True, exist_ok=True)
        async with DemoEnvironment(folder, port=port).running() as demo:
            configure_logging(
                None,
                demo.gateway.mask,
                level="warning",
                as_json=False,
                reported=demo.gateway.reported,
            )
            print_line(f"chat      {demo.address}")
            print_line(f"jobs      {demo.address}/jobs/")
            print_line(f"telegram  {demo.fake.base} (a fake one, for this demo)")
            print_line("Ctrl-C ends it.")
            await _wait_for_signal()


async def run_fake(host: str, port: int, print_line: Print) -> None:
    """Run a fake Telegram alone."""
    async with fake_telegram(host=host, port=port, clock=LeapClock()) as fake:
        print_line(f"export TELEGRAM_API_BASE={fake.base}")
        print_line(
            f"Act as a user: POST {fake.base}/control/bots/ID/messages (docs/gateway-demo.md)."
        )
        print_line("Every token of the usual shape is a bot. Ctrl-C ends it.")
        await _wait_for_signal()


async def _wait_for_signal() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        await ended.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
