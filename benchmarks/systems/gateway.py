"""The Telegram gateway's door: each 200 says that the update is in the database.

An `echo` bot in the queue, on SQLite (`default`: FULL for what stores a job) or Postgres. Workers
are another process's business and do not run here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from benchmarks import postgres
from benchmarks.systems import Announce
from benchmarks.systems.doors import SECRET, SLUG, TOKEN, Count, DoorSystem
from telegram_gateway.config import Bot, HandlerName, Settings
from telegram_gateway.gateway import Gateway
from telegram_gateway.serving import server_config


def open_system(directory: Path, synchronous: str, _: Announce) -> DoorSystem:
    on_postgres = synchronous == "postgres"
    url = postgres.address(directory) if on_postgres else f"sqlite:///{directory}/gateway.db"
    bot = Bot(
        slug=SLUG,
        handler=HandlerName.ECHO,
        token=TOKEN,
        secrets=(SECRET.encode(),),
        in_queue=True,
        require_auth=False,
        max_waiting=10_000_000,
    )
    settings = Settings(database_url=url)

    @asynccontextmanager
    async def serving(place: socket.socket) -> AsyncGenerator[Count, None]:
        gateway = Gateway(settings, [bot])
        server = uvicorn.Server(server_config(gateway))
        server.capture_signals = _nothing  # pyright: ignore[reportAttributeAccessIssue]
        async with gateway.running(workers=False):
            task = asyncio.create_task(server.serve(sockets=[place]))
            while not server.started:
                await asyncio.sleep(0.01)
            labels = {"bot": SLUG, "outcome": "accepted"}
            yield lambda: int(gateway.counters.value("gateway_updates_total", **labels))
            server.should_exit = True
            await task

    return DoorSystem(serving)


class _nothing:
    """Signals belong to the main thread."""

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return
