"""A small site on this machine: seven pages, one of which is missing and one busy at first."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LINKS = {
    "/": ["/books", "/music", "/busy", "/gone"],
    "/books": ["/books/1", "/books/2", "/"],
    "/music": ["/books"],
    "/busy": [],
    "/books/1": ["/"],
    "/books/2": ["/"],
}


@dataclass
class Requests:
    """What the site was asked for, and how many requests ran at once."""

    paths: list[str] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    running: int = 0


@contextmanager
def serve() -> Iterator[tuple[str, Requests]]:
    """The site, until the block ends: its address and what it was asked for."""
    requests, lock = Requests(), threading.Lock()

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with lock:
                requests.running += 1
                requests.at_once.append(requests.running)
                requests.paths.append(self.path)
                again = requests.paths.count(self.path) > 1
            try:
                self.answer(again)
            finally:
                with lock:
                    requests.running -= 1

        def answer(self, again: bool) -> None:
            busy = self.path == "/busy" and not again
            known = self.path in LINKS
            self.send_response(429 if busy else 200 if known else 404)
            if busy:
                self.send_header("Retry-After", "0.3")
            self.end_headers()
            links = "".join(f'<a href="{link}">x</a>' for link in LINKS.get(self.path, ()))
            self.wfile.write(f"<title>page {self.path}</title>{links}".encode())

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
