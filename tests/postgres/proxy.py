"""A proxy with faults: it can swallow replies, drop notifications or break the connection."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

_SOCKET = ".s.PGSQL.5432"
_NOTIFICATION = ord("A")
_BIND_COMPLETE = b"2"
_READY = b"Z"


class FaultyProxy:
    """A proxy in front of a server's socket.

    ``swallow``: the next result of the server is dropped and the connection closed, so that the
    caller does not know the effect of its statement. ``deaf``: notifications are dropped.
    """

    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallow = False
        self.swallowed = 0
        self.deaf = False

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._folder / _SOCKET)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            theirs = await asyncio.open_unix_connection(self._target / _SOCKET)
            up = asyncio.create_task(self._up(reader, theirs[1]))
            down = asyncio.create_task(self._down(theirs[0], writer))
            try:
                await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for half in (up, down):
                    half.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
                theirs[1].close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        swallowing = False
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
            if self.swallow and head[:1] == _BIND_COMPLETE:
                swallowing = True
            if swallowing:
                # The server is ready for the next statement once this one is committed.
                if head[:1] == _READY:
                    self.swallow = False
                    self.swallowed += 1
                    return
                continue
            if self.deaf and head[0] == _NOTIFICATION:
                continue
            writer.write(head + body)
            await writer.drain()


@contextlib.asynccontextmanager
async def faulty_proxy(url: str) -> AsyncGenerator[tuple[FaultyProxy, str], None]:
    """A proxy for the server of an address, and the same address through it."""
    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    folder = Path(tempfile.mkdtemp(prefix="forge-proxy-"))
    proxy = FaultyProxy(Path(options["host"]), folder)
    await proxy.start()
    try:
        options["host"] = str(folder)
        yield proxy, urlunsplit(parts._replace(query=urlencode(options)))
    finally:
        await proxy.stop()
        shutil.rmtree(folder, ignore_errors=True)
