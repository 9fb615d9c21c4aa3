"""Starting a thread from a caller whom a signal may interrupt.

``Thread.start`` waits under a condition until the thread runs. An exception that a signal handler
raises there can leave the condition locked, and the new thread then hangs before its first line. So
a helper thread, which no signal reaches, starts it.
"""

import threading
from _thread import start_new_thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


def start_thread(target: Callable[..., object], *arguments: Any, name: str) -> None:
    """Start a daemon thread. RuntimeError when Python starts no more, which is so at its exit."""
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
