"""aiogram's own webhook server: aiohttp, answering before the update is handled.

Keeps: nothing; an update is a task of the event loop until a handler has run, and a crash loses it.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

from benchmarks.systems import Announce
from benchmarks.systems.doors import PATH, SECRET, TOKEN, Count, DoorSystem


def open_system(_: Path, __: str, ___: Announce) -> DoorSystem:
    return DoorSystem(_serving)


@asynccontextmanager
async def _serving(place: socket.socket) -> AsyncGenerator[Count, None]:
    dispatcher, seen = Dispatcher(), [0]

    @dispatcher.message()
    async def note(message: Any) -> None:
        seen[0] += 1

    app = web.Application()
    handler = SimpleRequestHandler(dispatcher, Bot(TOKEN), secret_token=SECRET)
    handler.register(app, path=PATH)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, place).start()
    yield lambda: seen[0]
    await runner.cleanup()
