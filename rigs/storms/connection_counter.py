"""Listens in place of a stopped server: counts connection attempts and closes them."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class ConnectionCounter:
    """The number of connection attempts."""

    def __init__(self) -> None:
        self.attempts = 0


@contextmanager
def count_connections(folder: Path) -> Iterator[ConnectionCounter]:
    """Listen on the socket of the server in that folder until the block ends."""
    counter, stopped = ConnectionCounter(), threading.Event()
    path = folder / SOCKET
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    os.chmod(path, 0o777)
    listener.listen(100)
    listener.settimeout(0.05)

    def accept_loop() -> None:
        while not stopped.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            counter.attempts += 1
            client.close()

    thread = threading.Thread(target=accept_loop, name="stand-in")
    thread.start()
    try:
        yield counter
    finally:
        stopped.set()
        thread.join()
        listener.close()
        path.unlink(missing_ok=True)
