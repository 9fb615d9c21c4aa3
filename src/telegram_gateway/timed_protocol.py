"""An HTTP protocol for uvicorn that closes connections whose headers do not arrive in time.

uvicorn limits the time between requests, but not how long a client may take to send its headers: a
few stalled clients could hold all sockets of the gateway. The time limit for bodies is in
``webhook``.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_TIMEOUT_S: Final = 10.0


# httptools' protocol where it is installed, else h11's. Both have ``cycle``: the request whose
# headers are complete.
_Base: Any = AutoHTTPProtocol


class TimedProtocol(_Base):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        _Base.connection_made(self, transport)
        self._header_timer: asyncio.TimerHandle | None = None
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        _Base.data_received(self, data)
        if self._has_request():
            self._stop_timer()
        elif self._header_timer is None:
            # The next request of the connection has begun.
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        _Base.connection_lost(self, exc)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_headers(self) -> None:
        loop: asyncio.AbstractEventLoop = self.loop
        self._header_timer = loop.call_later(HEADER_TIMEOUT_S, self._close_if_stalled)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_if_stalled(self) -> None:
        self._header_timer = None
        if not self._has_request() and not self.transport.is_closing():
            self.transport.close()
