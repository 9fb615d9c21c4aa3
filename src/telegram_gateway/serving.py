"""``telegram-gateway serve``: the door on a socket, until a signal asks to stop."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Generator
from typing import Final

import uvicorn

from .config import Mode
from .gateway import Gateway
from .polling import poll

_LOG: Final = logging.getLogger("telegram_gateway")


class _Server(uvicorn.Server):
    """Signals are the gateway's: readiness turns first, and workers drain after the door."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(gateway: Gateway) -> None:
    """Run until SIGTERM or SIGINT; a second one ends at once."""
    settings = gateway.settings
    config = uvicorn.Config(
        gateway.app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=max(int(settings.grace_s / 4), 1),
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if gateway.webhook.draining:
            # Leases run out by themselves; whoever signals twice wants the process gone.
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            signal.raise_signal(signal.SIGKILL)
        gateway.webhook.draining = True
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with gateway.running():
        greeting = asyncio.create_task(gateway.greet(), name="greeting")
        pollers = [
            asyncio.create_task(poll(gateway, bot), name=f"poll {bot.slug}")
            for bot in gateway.bots
            if bot.mode is Mode.POLLING
        ]
        _LOG.info("listening on %s:%d for %d bots", settings.host, settings.port, len(gateway.bots))
        try:
            await server.serve()
        finally:
            gateway.webhook.draining = True
            for task in [greeting, *pollers]:
                task.cancel()
            await asyncio.gather(greeting, *pollers, return_exceptions=True)
