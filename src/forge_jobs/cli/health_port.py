"""The HTTP server of ``--health-port``: ``/healthz`` while the process runs, ``/readyz`` while it
serves its queues, ``/metrics`` for Prometheus.

It listens on loopback only and runs on the I/O thread, like the heartbeat: a handler that blocks
the main loop is no reason to restart the worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from forge_jobs.kit.log import log_facts

_MAX_REQUEST: Final = 8 << 10
_REQUEST_S: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOG = logging.getLogger("forge_jobs.worker")
_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Not Ready"}


async def serve_health(
    port: int, ready: Callable[[], bool], metrics: Callable[[], Awaitable[str]]
) -> asyncio.Server:
    """Serve on 127.0.0.1 until the server is closed. Raises OSError if the port is in use."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                if _path(request) == b"/metrics":
                    writer.write(await _metrics_response(request, metrics))
                else:
                    writer.write(_probe_response(request, ready()))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(respond, "127.0.0.1", port, limit=_MAX_REQUEST)


async def _metrics_response(request: bytes, metrics: Callable[[], Awaitable[str]]) -> bytes:
    if not _is_get(request):
        return _response(request, 405, _REASONS[405].lower())
    try:
        return _response(request, 200, await metrics(), _PROMETHEUS)
    except Exception as error:
        # The store's error goes to the log only: the client of this port may not be trusted.
        text = f"{type(error).__name__}: {error}"
        log_facts(_LOG, logging.WARNING, "metrics cannot be read", error=text)
        return _response(request, 503, "the store does not answer")


def _probe_response(request: bytes, is_ready: bool) -> bytes:
    path = _path(request)
    if path not in (b"/healthz", b"/readyz"):
        status = 404
    elif not _is_get(request):
        status = 405
    else:
        status = 200 if is_ready or path == b"/healthz" else 503
    words = {200: "ok", 503: "not ready"}.get(status, _REASONS[status].lower())
    return _response(request, status, words)


def _path(request: bytes) -> bytes:
    return request.partition(b" ")[2].split(b" ")[0].split(b"?")[0]


def _is_get(request: bytes) -> bool:
    return request.partition(b" ")[0] in (b"GET", b"HEAD")


def _response(request: bytes, status: int, words: str, kind: str = _TEXT) -> bytes:
    text = words if words.endswith("\n") else words + "\n"
    body = b"" if request.startswith(b"HEAD ") else text.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
