"""The HTTP protocol of the standalone server, with a time limit for the head of a request.

uvicorn ends idle connections after a response, but waits for ever for the first request, and for
the rest of a head that arrives byte by byte. The time limit for bodies is in ``guard``.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_S: Final = 15.0


class TimedProtocol(AutoHTTPProtocol):
    """Closes a connection whose request head is not complete after ``HEAD_S``."""

    transport: asyncio.Transport
    cycle: Any
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and not self._has_request():
            self._start_timer()
        super().data_received(data)
        if self._has_request():
            self._stop_timer()

    def _has_request(self) -> bool:
        """Whether a request is being answered: its head is complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(HEAD_S, self._close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()
