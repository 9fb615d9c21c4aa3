"""``telegram-gateway serve`` and ``poll``: run the gateway until SIGTERM or SIGINT."""

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


class _GatewayServer(uvicorn.Server):
    """Does not handle signals: the gateway fails readiness first, and drains workers after the
    HTTP server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def server_config(gateway: Gateway) -> uvicorn.Config:
    """The settings of the HTTP server."""
    settings = gateway.settings
    return uvicorn.Config(
        gateway.app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        # Wrong secrets are counted per address, so forwarded addresses are not trusted.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=max(int(settings.grace_s / 4), 1),
    )


async def serve(gateway: Gateway) -> None:
    """Serve webhooks until SIGTERM or SIGINT; a second signal kills the process."""
    settings = gateway.settings
    server = _GatewayServer(server_config(gateway))

    def stop() -> None:
        server.should_exit = True

    _on_signals(gateway, stop)
    polled = [bot for bot in gateway.bots if bot.mode is Mode.POLLING]
    async with gateway.running(), _background(gateway, polled):
        _LOG.info("listening on %s:%d for %d bots", settings.host, settings.port, len(gateway.bots))
        await server.serve()


async def run_polling(gateway: Gateway) -> None:
    """Poll for all bots without a listener, until SIGTERM or SIGINT; a second signal kills it."""
    stopped = asyncio.Event()
    _on_signals(gateway, stopped.set)
    async with gateway.running(), _background(gateway, gateway.bots):
        _LOG.info("fetching the updates of %d bots", len(gateway.bots))
        await stopped.wait()


@contextlib.asynccontextmanager
async def _background(gateway: Gateway, polled: Sequence[Bot]) -> AsyncGenerator[None, None]:
    """Run the background tasks; they end before the workers do."""
    work = [
        ("check services", gateway.check_services()),
        ("check tokens", gateway.check_tokens()),
        ("poll webhook status", poll_webhooks(gateway, polled)),
    ]
    work += [(f"poll {bot.slug}", poll(gateway, bot)) for bot in polled]
    tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in work]
    try:
        yield
    finally:
        gateway.webhook.draining = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _on_signals(gateway: Gateway, stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if gateway.webhook.draining:
            # A second signal: exit without cleanup. The lease expires by itself.
            signal.raise_signal(signal.SIGKILL)
        gateway.webhook.draining = True
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
