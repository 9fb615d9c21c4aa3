"""python-telegram-bot's own webhook server: tornado, answering once the update is in its queue.

Keeps: nothing; the queue is an asyncio.Queue in memory, emptied here by one task, as its
Application does, and a crash loses what is in it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tornado.httpserver
from telegram import Bot
from telegram.ext._utils.webhookhandler import WebhookAppClass

from benchmarks.systems import Announce
from benchmarks.systems.doors import PATH, SECRET, TOKEN, Count, DoorSystem


def open_system(_: Path, __: str, ___: Announce) -> DoorSystem:
    return DoorSystem(_serving)


@asynccontextmanager
async def _serving(place: socket.socket) -> AsyncGenerator[Count, None]:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    seen = [0]

    async def take() -> None:
        while True:
            await queue.get()
            seen[0] += 1

    app = WebhookAppClass(PATH, Bot(TOKEN), queue, SECRET)
    server = tornado.httpserver.HTTPServer(app)
    place.setblocking(False)
    server.add_socket(place)
    taking = asyncio.create_task(take())
    yield lambda: seen[0]
    taking.cancel()
    server.stop()
    await server.close_all_connections()
