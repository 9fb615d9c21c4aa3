"""A Mission Control with three people who hold tokens, for tests; in process or on a socket."""

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

PEOPLE = {Role.VIEWER: "vera", Role.OPERATOR: "otto", Role.ADMIN: "ada"}
PASSWORD = "correct horse battery"
FAR = ("10.1.2.3", 4711)


@cache
def credentials() -> Credentials:
    """The same for all: making them is dear on purpose."""
    tokens = {hash_token(token(role)): Identity(name, role) for role, name in PEOPLE.items()}
    return Credentials({Role.ADMIN: PASSWORD}, tokens)


def token(role: Role) -> str:
    return f"forge_test_{role.word}"


@dataclass
class Panel:
    """A Forge, its Mission Control, and ways to ask it."""

    forge: Forge
    app: MissionControl

    def __enter__(self) -> "Panel":
        return self

    def __exit__(self, *error: object) -> None:
        self.forge.close()

    @asynccontextmanager
    async def client(self, role: Role | None, root: str = "") -> AsyncGenerator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=FAR, root_path=root)
        headers = {} if role is None else {"authorization": f"Bearer {token(role)}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://jobs.example", headers=headers
        ) as client:
            yield client


def panel(url: str = "memory://", **options: Any) -> Panel:
    forge = Forge(url)
    options.setdefault("auth", credentials())
    return Panel(forge, mission_control(forge, **options))


@contextmanager
def on_a_socket(app: Any) -> Generator[str]:
    """The app behind a real server on a thread of its own; its address."""
    place = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[place]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{place.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        place.close()
