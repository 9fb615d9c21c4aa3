"""A Mission Control with a token for each role, for tests; in process or on a socket."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import uvicorn

from forge_jobs import Forge
from forge_jobs.web import Credentials, Identity, Role, mission_control
from forge_jobs.web.access.hashes import hash_token
from forge_jobs.web.app import MissionControl

NAMES = {Role.VIEWER: "vera", Role.OPERATOR: "otto", Role.ADMIN: "ada"}
PASSWORD = "correct horse battery"
REMOTE_CLIENT = ("10.1.2.3", 4711)


@cache
def credentials() -> Credentials:
    """Cached, because hashing is deliberately expensive."""
    tokens = {hash_token(token(role)): Identity(name, role) for role, name in NAMES.items()}
    return Credentials({Role.ADMIN: PASSWORD}, tokens)


def token(role: Role) -> str:
    return f"forge_test_{role.word}"


@dataclass
class WebHarness:
    """A Forge, its Mission Control, and clients of it."""

    forge: Forge
    app: MissionControl

    def __enter__(self) -> "WebHarness":
        return self

    def __exit__(self, *error: object) -> None:
        self.forge.close()

    @asynccontextmanager
    async def client(self, role: Role | None, root: str = "") -> AsyncGenerator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=REMOTE_CLIENT, root_path=root)
        headers = {} if role is None else {"authorization": f"Bearer {token(role)}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://jobs.example", headers=headers
        ) as client:
            yield client


def web_harness(url: str = "memory://", **options: Any) -> WebHarness:
    forge = Forge(url)
    options.setdefault("auth", credentials())
    return WebHarness(forge, mission_control(forge, **options))


@contextmanager
def serve_on_socket(app: Any) -> Generator[str]:
    """Serve the app with uvicorn on its own thread; yields its URL."""
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[sock]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        sock.close()
