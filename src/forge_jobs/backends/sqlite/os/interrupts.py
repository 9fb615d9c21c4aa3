"""Tells exceptions raised by signal handlers from those of the library; interrupt-safe locking.

Python runs signal handlers on the main thread, between two instructions: where a Python function
begins, after a call, and where a loop starts over. An exception of a handler (KeyboardInterrupt, a
soft time limit) is raised by code that cannot raise it. Three rules keep the writer consistent:

* A lock is acquired inside the ``try`` and released by a single call into C at the very beginning
  of the ``finally``: no handler can run in between. Releasing a lock that is not held is harmless.
* What has happened is decided by the connection: whether it is still in its transaction.
* Requests stay in the writer's queue until they are delivered, so that the next caller completes
  what an interrupted one has left.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import compress
from operator import call
from types import TracebackType
from typing import Final, Protocol

_OURS: Final = "forge_jobs"


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler raised this.

    True for KeyboardInterrupt and the like. A plain Exception (TimeoutError from SIGALRM) counts if
    it was raised by code outside this library, on the thread where handlers run.
    """
    if not isinstance(error, Exception):
        return True
    if threading.current_thread() is not threading.main_thread():
        return False
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    module = last.tb_frame.f_globals.get("__name__", "")
    return module.partition(".")[0] != _OURS


class Lock(Protocol):
    """A lock of ``threading``, whose methods are implemented in C."""

    def acquire(self, blocking: bool, timeout: float, /) -> bool: ...

    def release(self) -> None: ...


def acquire_noted(lock: Lock, timeout_s: float, releases: list[Callable[[], None]]) -> None:
    """Acquire a lock and append its ``release`` to the list, by one call into C; for a lock that is
    held beyond a ``with`` block."""
    releases.extend(compress((lock.release,), map(lock.acquire, (True,), (timeout_s,))))


def release_noted(releases: list[Callable[[], None]]) -> None:
    """Call and remove all entries of the list, by one call into C. May be repeated."""
    with suppress(IndexError):
        deque(map(call, iter(releases.pop, None)), maxlen=0)
