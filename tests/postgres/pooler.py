"""A minimal pooler in transaction mode, on its own thread.

Each transaction of a client runs on any free server connection, not always the same one. Prepared
statements do not follow it, and notifications are not delivered, so a client must keep no session
state. (PgBouncer before 1.21 behaves like this.)
"""

import asyncio
import contextlib
import random
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"
_PROTOCOL = struct.pack("!I", 196_608)
_AUTHENTICATED = b"R" + struct.pack("!II", 8, 0)
_IDLE = b"I"

_Server = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """Accepts clients at ``folder``; has ``size`` connections of one user to ``target``."""

    def __init__(self, target: Path, folder: Path, *, size: int = 5) -> None:
        self._target = target
        self._folder = folder
        self._size = size
        self._made = 0
        self._free: list[_Server] = []
        self._room = asyncio.Condition()
        self._hello = b""
        self._dice = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        self._free.append(await self._connect())
        listening = await asyncio.start_unix_server(self._client, self._folder / _SOCKET)
        started.set()
        await stop.wait()
        listening.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, writer in self._free:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connect(self) -> _Server:
        self._made += 1
        reader, writer = await asyncio.open_unix_connection(self._target / _SOCKET)
        asked = _PROTOCOL + b"user\0postgres\0database\0postgres\0application_name\0pooler\0\0"
        writer.write(struct.pack("!I", len(asked) + 4) + asked)
        hello = b""
        while True:
            kind, message = await _message(reader)
            if kind == b"S":
                hello += message
            assert kind != b"E", message
            if kind == b"Z":
                self._hello = hello
                return reader, writer

    async def _take(self) -> _Server:
        async with self._room:
            while not self._free:
                if self._made < self._size:
                    return await self._connect()
                await self._room.wait()
            return self._free.pop(self._dice.randrange(len(self._free)))

    async def _give_back(self, server: _Server) -> None:
        async with self._room:
            self._free.append(server)
            self._room.notify()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            size = struct.unpack("!I", await reader.readexactly(4))[0]
            await reader.readexactly(size - 4)
            # The pid of no server process, as every pooler reports one.
            key = b"K" + struct.pack("!III", 12, 4_000_000 + id(task) % 1_000_000, 1)
            writer.write(_AUTHENTICATED + self._hello + key + b"Z" + struct.pack("!I", 5) + _IDLE)
            await self._transactions(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _transactions(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        server: _Server | None = None
        answers: asyncio.Task[None] | None = None
        try:
            while True:
                kind, message = await _message(reader)
                if kind == b"X":
                    return
                if answers is None or answers.done():
                    server = await self._take()
                    answers = asyncio.create_task(self._answers(server, writer))
                server[1].write(message)  # type: ignore[index]
        finally:
            if answers is not None and not answers.done():
                # The client disconnected in the middle: the server connection cannot be used again.
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                assert server is not None
                server[1].close()
                async with self._room:
                    self._made -= 1
                    self._room.notify()

    async def _answers(self, server: _Server, writer: asyncio.StreamWriter) -> None:
        """Pass replies on until the transaction ends."""
        while True:
            kind, message = await _message(server[0])
            if kind == b"A":
                continue
            over = kind == b"Z" and message[-1:] == _IDLE
            if over:
                await self._give_back(server)
            writer.write(message)
            if over:
                return


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


@contextlib.contextmanager
def transaction_pooler(target: Path) -> Iterator[Path]:
    """A pooler for the server with its socket in ``target``; yields its own socket folder."""
    folder = Path(tempfile.mkdtemp(prefix="forge-pool-"))
    started = threading.Event()
    box: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def run() -> None:
        async def main() -> None:
            stop = asyncio.Event()
            box.append((asyncio.get_running_loop(), stop))
            await Pooler(target, folder).serve(started, stop)

        asyncio.run(main())

    thread = threading.Thread(target=run, name="pooler", daemon=True)
    thread.start()
    try:
        assert started.wait(30), "the pooler did not start"
        yield folder
    finally:
        loop, stop = box[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        shutil.rmtree(folder, ignore_errors=True)
