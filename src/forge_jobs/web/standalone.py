"""Serves Mission Control on its own socket: for ``forge web``, ``forge dev`` and ``forge demo``."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn

from forge_jobs.core.errors import BadConfig, Refused

from .access.credentials import Credentials, from_environment
from .access.methods import LOOPBACK
from .app import mission_control
from .http_protocol import TimedProtocol
from .page_files import REMEDY, missing_files

if TYPE_CHECKING:
    from forge_jobs.app import Forge

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8787
_STOP_S: Final = 3


def check_host(host: str, credentials: Credentials | None) -> None:
    """Refuse to listen on an address other than loopback without credentials."""
    if host not in LOOPBACK and credentials is None:
        raise Refused(
            f"--host {host} would open Mission Control to others, and nobody had to log in. Set "
            "FORGE_WEB_PASSWORD (see `forge web password`) or FORGE_WEB_TOKENS "
            "(see `forge web token`), or listen on 127.0.0.1"
        )


def check_page_files() -> None:
    """Refuse to serve pages whose scripts are not installed: charts and buttons would not work."""
    if missing := missing_files():
        raise Refused(f"files of the pages are missing ({', '.join(missing)}): {REMEDY}")


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise BadConfig(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port"
        ) from error
    return sock


def listen_preferring(port: int) -> socket.socket:
    """Bind a loopback socket on that port, or on any free one if it is taken."""
    try:
        return listen(DEFAULT_HOST, port)
    except BadConfig:
        return listen(DEFAULT_HOST, 0)


def address(sock: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def serve(
    forge: "Forge",
    sock: socket.socket,
    *,
    read_only: bool = False,
    hosts: Sequence[str] = (),
) -> AsyncGenerator[asyncio.Task[None]]:
    """Serve Mission Control on that socket while the block runs; the task ends if it fails."""
    app = mission_control(forge, auth=from_environment(), read_only=read_only, hosts=tuple(hosts))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_STOP_S,
        server_header=False,
        http=TimedProtocol,
        ws="none",
    )
    server = _ServerWithoutSignals(config)
    task = asyncio.create_task(server.serve(sockets=[sock]), name="mission control")
    try:
        yield task
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        await app.aclose()
        sock.close()


@contextmanager
def serve_in_thread(url: str | None, sock: socket.socket) -> Generator[str]:
    """Serve Mission Control on its own thread while the block runs; yields its URL. For commands
    without an event loop."""
    ready, ended = threading.Event(), threading.Event()
    stop: list[Callable[[], object]] = []

    async def run_loop() -> None:
        from forge_jobs.app import Forge

        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
        forge = Forge(url)
        try:
            async with serve(forge, sock):
                ready.set()
                await stopped.wait()
        finally:
            await forge.aclose()

    def run() -> None:
        try:
            asyncio.run(run_loop())
        finally:
            ended.set()
            ready.set()

    thread = threading.Thread(target=run, name="mission control", daemon=True)
    thread.start()
    try:
        ready.wait()
        yield address(sock)
    finally:
        for request_stop in stop:
            if not ended.is_set():
                request_stop()
        thread.join(_STOP_S * 2)


class _ServerWithoutSignals(uvicorn.Server):
    """Does not install signal handlers: the command that runs the loop has its own."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
