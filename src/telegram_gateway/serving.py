"""``telegram-gateway serve`` and ``poll``: the gateway until a signal asks it to stop."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Final

import uvicorn

from .config import Bot, Mode
from .gateway import Gateway
from .polling import poll
from .webhook_status import poll_webhooks

_LOG: Final = logging.getLogger("telegram_gateway")


class _Server(uvicorn.Server):
    """Signals are the gateway's: readiness turns first, and workers drain after the door."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def server_config(gateway: Gateway) -> uvicorn.Config:
    """How the door is served."""
    settings = gateway.settings
    return uvicorn.Config(
        gateway.app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        # A forwarded address would be believed by whoever counts wrong secrets.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=max(int(settings.grace_s / 4), 1),
    )


async def serve(gateway: Gateway) -> None:
    """The door on its socket, until SIGTERM or SIGINT; a second one ends at once."""
    settings = gateway.settings
    server = _Server(server_config(gateway))

    def stop() -> None:
        server.should_exit = True

    _on_signals(gateway, stop)
    polled = [bot for bot in gateway.bots if bot.mode is Mode.POLLING]
    async with gateway.running(), _background(gateway, polled):
        _LOG.info("listening on %s:%d for %d bots", settings.host, settings.port, len(gateway.bots))
        await server.serve()


async def fetch(gateway: Gateway) -> None:
    """Poll for all bots and listen nowhere, until SIGTERM or SIGINT; a second one ends at once."""
    stopped = asyncio.Event()
    _on_signals(gateway, stopped.set)
    async with gateway.running(), _background(gateway, gateway.bots):
        _LOG.info("fetching the updates of %d bots", len(gateway.bots))
        await stopped.wait()


@contextlib.asynccontextmanager
async def _background(gateway: Gateway, polled: Sequence[Bot]) -> AsyncGenerator[None, None]:
    """What runs next to door and workers, and ends before they do."""
    work = [("greeting", gateway.greet()), ("watching", poll_webhooks(gateway, polled))]
    work += [(f"poll {bot.slug}", poll(gateway, bot)) for bot in polled]
    tasks = [asyncio.create_task(one, name=name) for name, one in work]
    try:
        yield
    finally:
        gateway.webhook.draining = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _on_signals(gateway: Gateway, stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if gateway.webhook.draining:
            # Leases run out by themselves; whoever signals twice wants the process gone.
            signal.raise_signal(signal.SIGKILL)
        gateway.webhook.draining = True
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
