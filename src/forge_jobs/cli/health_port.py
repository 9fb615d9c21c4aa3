"""A tiny HTTP answer for probes: ``/healthz`` while the process runs, ``/readyz`` while it serves.

Listens on loopback only and lives on the I/O thread, like the lease: a job that blocks its loop is
not a reason to restart the worker.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_REQUEST_MOST: Final = 8 << 10
_REQUEST_S: Final = 5.0
_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Not Ready"}


async def serve_health(port: int, ready: Callable[[], bool]) -> asyncio.Server:
    """Answer on 127.0.0.1 until the server is closed. OSError when the port is taken."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(_answer(request, ready()))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port, limit=_REQUEST_MOST)


def _answer(request: bytes, is_ready: bool) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ")[0].split(b"?")[0]
    if path not in (b"/healthz", b"/readyz"):
        status = 404
    elif method not in (b"GET", b"HEAD"):
        status = 405
    else:
        status = 200 if is_ready or path == b"/healthz" else 503
    words = {200: "ok", 503: "not ready"}.get(status, _REASONS[status].lower())
    body = b"" if method == b"HEAD" else words.encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
