"""A webhook receiver on this machine: it keeps what it got, and counts each message id once."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came, in order. ``statuses`` are the next answers; after them it answers ``status``."""

    url: str
    requests: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    status: int = 204

    @property
    def by_id(self) -> dict[str, Any]:
        """The messages that were taken, without repeated ids."""
        return {one.headers["webhook-id"]: one.message for one in self.requests}

    @property
    def types(self) -> list[str]:
        return [one["type"] for one in self.by_id.values()]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of 127.0.0.1, for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.statuses.pop(0) if receiver.statuses else receiver.status
            if 200 <= status < 300:
                receiver.requests.append(Received(self.path, headers, body))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

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
