"""A tiny HTTP answer for probes: ``/healthz`` while the process runs, ``/readyz`` while it serves,
and ``/metrics`` for Prometheus.

Listens on loopback only and lives on the I/O thread, like the lease: a job that blocks its loop is
not a reason to restart the worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

_MAX_REQUEST: Final = 8 << 10
_REQUEST_S: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"
_PAGE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOG = logging.getLogger("forge_jobs.worker")
_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Not Ready"}


async def serve_health(
    port: int, ready: Callable[[], bool], metrics: Callable[[], Awaitable[str]]
) -> asyncio.Server:
    """Answer on 127.0.0.1 until the server is closed. OSError when the port is taken."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                if _path(request) == b"/metrics":
                    writer.write(await _page(request, metrics))
                else:
                    writer.write(_answer(request, ready()))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port, limit=_MAX_REQUEST)


async def _page(request: bytes, metrics: Callable[[], Awaitable[str]]) -> bytes:
    if not _is_read(request):
        return _whole(request, 405, _REASONS[405].lower())
    try:
        return _whole(request, 200, await metrics(), _PAGE)
    except Exception as error:
        # What is wrong with the store is for the log: whoever asks here may not be trusted with it.
        _LOG.warning("no metrics", extra={"error": f"{type(error).__name__}: {error}"})
        return _whole(request, 503, "the store does not answer")


def _answer(request: bytes, is_ready: bool) -> bytes:
    path = _path(request)
    if path not in (b"/healthz", b"/readyz"):
        status = 404
    elif not _is_read(request):
        status = 405
    else:
        status = 200 if is_ready or path == b"/healthz" else 503
    words = {200: "ok", 503: "not ready"}.get(status, _REASONS[status].lower())
    return _whole(request, status, words)


def _path(request: bytes) -> bytes:
    return request.partition(b" ")[2].split(b" ")[0].split(b"?")[0]


def _is_read(request: bytes) -> bool:
    return request.partition(b" ")[0] in (b"GET", b"HEAD")


def _whole(request: bytes, status: int, words: str, kind: str = _TEXT) -> bytes:
    text = words if words.endswith("\n") else words + "\n"
    body = b"" if request.startswith(b"HEAD ") else text.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
