"""The HTTP server of ``--health-port``: ``/healthz`` while the process runs, ``/readyz`` while it
serves its queues, ``/metrics`` for Prometheus.

It runs on the I/O thread, like the heartbeat: a handler that blocks the main loop is no reason to
restart the worker. With ``--health-host`` it may be reached from other machines, without a
password: its answers hold names of queues, kinds and workers and numbers, and its cost is bounded.
"""

import asyncio
import errno
import logging
import os
import socket
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.kit.clock import Clock

_MAX_REQUEST: Final = 8 << 10
_MAX_HEADERS: Final = 100
_MAX_CONNECTIONS: Final = 256
_REQUEST_S: Final = 5.0
_METRICS_AGE_S: Final = 1.0
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0
_TEXT: Final = "text/plain; charset=utf-8"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOG = logging.getLogger("forge_jobs.worker")
_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Not Ready"}
# A host name may have addresses of a family that this machine does not use.
_UNUSED_FAMILY: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

# A forked child closes them: one that outlives a killed worker would keep the port.
_listening: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of a host; empty while the port is in use.

    Raises BadOption if it can never be listened on.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadOption(f"--health-host {host!r} is no address of this machine: {error}") from error
    sockets: list[socket.socket] = []
    unused: OSError | None = None
    try:
        for family, address in dict.fromkeys((item[0], item[4]) for item in found):
            try:
                sockets.append(_listen(family, address, both_families=host == "::"))
            except OSError as error:
                if error.errno not in _UNUSED_FAMILY:
                    raise
                unused = error
        if unused is not None and not sockets:
            raise unused
    except OSError as error:
        for listener in sockets:
            listener.close()
        if error.errno == errno.EADDRINUSE:
            return []
        raise BadOption(
            f"--health-port: cannot listen on {_address(host, port)} ({_reason(error)}): "
            "choose another port or --health-host"
        ) from error
    return sockets


def _listen(family: int, address: object, *, both_families: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both_families))
        listener.bind(address)  # type: ignore[arg-type]  # as getaddrinfo returned it
        listener.listen()
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    _listening.add(listener)
    return listener


async def serve_health(
    host: str,
    port: int,
    sockets: list[socket.socket],
    responder: "HealthResponder",
    clock: Clock,
) -> list[asyncio.Server]:
    """Serve on ``sockets``, the result of ``bind``. While the port is in use, try again; the worker
    runs jobs meanwhile."""
    delay_s = _FIRST_RETRY_S
    while not sockets:
        _LOG.warning(
            "--health-port: cannot listen on %s (%s): probes and metrics are not served; next try "
            "in %g s",
            _address(host, port),
            os.strerror(errno.EADDRINUSE),
            delay_s,
        )
        await clock.sleep(delay_s)
        delay_s = min(2 * delay_s, _MAX_RETRY_S)
        sockets = bind(host, port)
    servers = [
        await asyncio.start_server(responder.respond, sock=listener, limit=_MAX_REQUEST)
        for listener in sockets
    ]
    _LOG.info("probes and metrics on %s", _address(host, port))
    return servers


class HealthResponder:
    """Answers requests. ``metrics`` is called at most once a second and never twice at a time:
    whoever reaches the port cannot load the store with it."""

    def __init__(
        self, ready: Callable[[], bool], metrics: Callable[[], Awaitable[str]], clock: Clock
    ) -> None:
        self._ready = ready
        self._metrics = metrics
        self._clock = clock
        self._connections: set[asyncio.StreamWriter] = set()
        self._metrics_lock = asyncio.Lock()
        self._metrics_text: str | None = None
        self._metrics_at = 0.0

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        if len(self._connections) >= _MAX_CONNECTIONS:
            # The longest open one: a client that sends nothing must not keep probes out.
            next(iter(self._connections)).close()
        self._connections.add(writer)
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                async with asyncio.timeout(_REQUEST_S):
                    await self._answer(reader, writer)
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readline()
        for _ in range(_MAX_HEADERS):
            if not (await reader.readline()).strip():
                break
        else:
            return
        if _path(request) == b"/metrics":
            writer.write(await self._metrics_response(request))
        else:
            writer.write(_probe_response(request, self._ready()))
        await writer.drain()

    async def _metrics_response(self, request: bytes) -> bytes:
        if not _is_get(request):
            return _response(request, 405, _REASONS[405].lower())
        try:
            async with self._metrics_lock:
                text = self._metrics_text
                if text is None or self._clock.mono() - self._metrics_at > _METRICS_AGE_S:
                    self._metrics_text = None
                    self._metrics_text = text = await self._metrics()
                    self._metrics_at = self._clock.mono()
            return _response(request, 200, text, _PROMETHEUS)
        except Exception as error:
            # Only to the log: the error may name addresses, and anybody may be asking.
            _LOG.warning("metrics cannot be read: %s: %s", type(error).__name__, error)
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


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _close_in_child() -> None:
    for listener in list(_listening):
        listener.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
