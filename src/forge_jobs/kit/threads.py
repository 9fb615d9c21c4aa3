"""Starts threads in a way that a signal handler cannot break.

``Thread.start`` waits on a condition until the thread runs. If a signal handler raises there, the
condition may stay locked and the new thread hangs before its first line. A helper thread starts it
instead: Python runs signal handlers on the main thread only.
"""

import threading
from _thread import start_new_thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


def start_thread(target: Callable[..., object], *arguments: Any, name: str) -> None:
    """Start a daemon thread. Raises RuntimeError at interpreter exit, when Python starts no more
    threads."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    started: SimpleQueue[BaseException | None] = SimpleQueue()
    start_new_thread(_start, (thread, started))
    error = started.get()
    if error is not None:
        raise error


def _start(thread: threading.Thread, started: "SimpleQueue[BaseException | None]") -> None:
    try:
        thread.start()
    except BaseException as error:
        started.put(error)
    else:
        started.put(None)
