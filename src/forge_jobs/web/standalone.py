"""Mission Control on a socket of its own: ``forge web``, and beside the workers of dev and demo."""

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
from .page_files import REMEDY, missing

if TYPE_CHECKING:
    from forge_jobs.app import Forge

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8787
_STOP_S: Final = 3


def check_host(host: str, access: Credentials | None) -> None:
    """Refuse to listen beyond this machine without credentials."""
    if host not in LOOPBACK and access is None:
        raise Refused(
            f"--host {host} would open Mission Control to others without a password: set "
            "FORGE_WEB_PASSWORD (see `forge web password`) or FORGE_WEB_TOKENS "
            "(see `forge web token`), or listen on 127.0.0.1"
        )


def check_pages() -> None:
    """Refuse to serve pages whose scripts are not installed: they would open without charts, and
    no button would work."""
    if absent := missing():
        raise Refused(f"files of the pages are missing ({', '.join(absent)}): {REMEDY}")


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise BadConfig(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port"
        ) from error
    return place


def listen_near(port: int) -> socket.socket:
    """A socket on this machine: that port, or any free one where it is taken."""
    try:
        return listen(DEFAULT_HOST, port)
    except BadConfig:
        return listen(DEFAULT_HOST, 0)


def address(place: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = place.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def served(
    forge: "Forge",
    place: socket.socket,
    *,
    read_only: bool = False,
    hosts: Sequence[str] = (),
) -> AsyncGenerator[asyncio.Task[None]]:
    """Mission Control on that socket for as long as the block runs; the task ends if it fails."""
    app = mission_control(forge, auth=from_environment(), read_only=read_only, hosts=tuple(hosts))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_STOP_S,
        server_header=False,
    )
    server = _Quiet(config)
    task = asyncio.create_task(server.serve(sockets=[place]), name="mission control")
    try:
        yield task
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        await app.aclose()
        place.close()


@contextmanager
def served_beside_workers(url: str | None, place: socket.socket) -> Generator[str]:
    """Mission Control on a thread of its own, for a command without an event loop; its address."""
    ready, ended = threading.Event(), threading.Event()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        from forge_jobs.app import Forge

        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(over.set))
        forge = Forge(url)
        try:
            async with served(forge, place):
                ready.set()
                await over.wait()
        finally:
            await forge.aclose()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ended.set()
            ready.set()

    thread = threading.Thread(target=run, name="mission control", daemon=True)
    thread.start()
    try:
        ready.wait()
        yield address(place)
    finally:
        for ask in stop:
            if not ended.is_set():
                ask()
        thread.join(_STOP_S * 2)


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever runs the loop."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
