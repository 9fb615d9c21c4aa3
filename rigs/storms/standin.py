"""Somebody in the place of a server that is down: counts who knocks and lets nobody in."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class Counter:
    """How many connections were tried."""

    def __init__(self) -> None:
        self.attempts = 0


@contextmanager
def stand_in(folder: Path) -> Iterator[Counter]:
    """Listen on the socket of the server whose folder it is, until the server comes back."""
    counter, over = Counter(), threading.Event()
    path = folder / SOCKET
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    os.chmod(path, 0o777)
    door.listen(100)
    door.settimeout(0.05)

    def watch() -> None:
        while not over.is_set():
            try:
                caller, _ = door.accept()
            except TimeoutError:
                continue
            counter.attempts += 1
            caller.close()

    thread = threading.Thread(target=watch, name="stand-in")
    thread.start()
    try:
        yield counter
    finally:
        over.set()
        thread.join()
        door.close()
        path.unlink(missing_ok=True)
