"""A webhook receiver on this machine: it keeps what it got, and counts each message id once."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """One request that was taken."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came, in order. ``statuses`` are the next answers; after them ``answer`` says what to
    answer, by default 204. 0 takes the message and closes the connection without an answer."""

    url: str
    requests: list[Received] = field(default_factory=list[Received])
    statuses: list[int] = field(default_factory=list[int])
    status: int = 204
    answer: Callable[[], int] | None = None

    @property
    def by_id(self) -> dict[str, Any]:
        """The messages that were taken, without repeated ids."""
        by_id: dict[str, Any] = {}
        for one in list(self.requests):
            by_id.setdefault(one.headers["webhook-id"], one.message)
        return by_id

    @property
    def types(self) -> list[str]:
        return [one["type"] for one in self.by_id.values()]

    def next_status(self) -> int:
        if self.statuses:
            return self.statuses.pop(0)
        return self.status if self.answer is None else self.answer()


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of 127.0.0.1, for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:
                return  # its sender died in the middle
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.next_status()
            if status < 300:
                receiver.requests.append(Received(self.path, headers, body))
            if status:
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()
            else:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/hook/secret-path")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
