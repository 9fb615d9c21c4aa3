"""``telegram-gateway serve`` and ``poll``: run the gateway until SIGTERM or SIGINT."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Final

import uvicorn

from forge_jobs import BadConfig

from .config import Bot, Mode, Settings
from .gateway import Gateway
from .polling import poll
from .timed_protocol import TimedProtocol
from .webhook_status import poll_webhooks

_LOG: Final = logging.getLogger("telegram_gateway")
_BACKLOG: Final = 2_048


class _GatewayServer(uvicorn.Server):
    """Does not handle signals: the gateway fails readiness first, and drains workers after the
    HTTP server."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(server_config(gateway))
        self._slugs = ", ".join(bot.slug for bot in gateway.bots)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            host, port = one.getsockname()[:2]
            _LOG.info("listening on %s:%d for the bots %s", host, port, self._slugs)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def server_config(gateway: Gateway) -> uvicorn.Config:
    """The settings of the HTTP server."""
    return uvicorn.Config(
        gateway.app,
        http=TimedProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        # Wrong secrets are counted per address, so forwarded addresses are not trusted.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=max(int(gateway.settings.grace_s / 4), 1),
    )


async def serve(gateway: Gateway) -> None:
    """Serve webhooks until SIGTERM or SIGINT; a second signal kills the process."""
    server = _GatewayServer(gateway)

    def stop() -> None:
        server.should_exit = True

    _on_signals(gateway, stop)
    polled = [bot for bot in gateway.bots if bot.mode is Mode.POLLING]
    async with gateway.running(), _background(gateway, polled):
        await server.serve(sockets=_bind(gateway.settings))


def _bind(settings: Settings) -> list[socket.socket]:
    """Sockets bound to every address of LISTEN."""
    found: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, address in dict.fromkeys(addresses):
            found.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
    except OSError as error:
        for one in found:
            one.close()
        where = f"{settings.host}:{settings.port}"
        raise BadConfig(
            f"LISTEN: cannot listen on {where}: {error.strerror or error}: end the process that "
            "uses it, or set LISTEN to another address"
        ) from None
    return found


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
        _LOG.info("stopping, within %g s (SHUTDOWN_GRACE)", gateway.settings.grace_s)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
