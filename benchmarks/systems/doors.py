"""Webhook servers under measurement: a server in a thread of its child process, asked by a port.

Each system of this kind gives `serving`, which opens the server on a socket and yields how many
updates it has accepted so far.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

SLUG = "bench"
TOKEN = "4242:AAbenchmarks_of_the_door_0123456789ab"
SECRET = "benchmark-secret-0123456789-0123456789"
PATH = f"/bot/{SLUG}"
OPEN_SECONDS = 30.0

Count = Callable[[], int]
Serving = Callable[[socket.socket], AbstractAsyncContextManager[Count]]


class DoorSystem:
    """One server on a free port of this machine."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._count: Count = lambda: 0
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)

    def open(self) -> dict[str, Any]:
        self._thread.start()
        if not self._opened.wait(OPEN_SECONDS):
            raise TimeoutError("the server did not open")
        if self._failure is not None:
            raise RuntimeError(f"the server did not open: {self._failure}")
        return {"port": self._socket.getsockname()[1]}

    def spent(self) -> dict[str, Any]:
        """Processor seconds of this process, and updates accepted, so far."""
        return {"cpu": time.process_time(), "accepted": self._count()}

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(OPEN_SECONDS)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as failure:
            self._failure = failure
            self._opened.set()
            raise
        finally:
            self._loop.close()

    async def _live(self) -> None:
        async with self._serving(self._socket) as self._count:
            self._opened.set()
            await self._ended.wait()
