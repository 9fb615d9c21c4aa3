"""Exceptions that a signal handler raised, told from our own.

Python runs signal handlers on the main thread, between two instructions of whatever runs there:
where a Python function begins, after a call, and where a loop starts over. What a handler raises
(KeyboardInterrupt, a soft time limit) comes out of code that cannot raise it. Three rules keep the
writer honest:

* What must be given back is taken inside the ``try``, and given back by a single call into C at the
  very beginning of the ``finally``: no handler can run in between. Giving back what was not taken
  does no harm.
* What has happened is decided by facts: whether the connection is still in its transaction.
* Operations stay in line until their callers have been told, so that whoever comes next finishes
  what an interrupted caller has left.
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

    KeyboardInterrupt and its like always. A plain Exception (TimeoutError from SIGALRM) if it comes
    from code that is not ours, on the thread where handlers run.
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
    """A lock of ``threading``, whose methods are written in C."""

    def acquire(self, blocking: bool, timeout: float, /) -> bool: ...

    def release(self) -> None: ...


def acquire_noted(lock: Lock, timeout_s: float, releases: list[Callable[[], None]]) -> None:
    """Acquire a lock and note its release in the list, by one call into C; for a lock that is held
    beyond a ``with`` block."""
    releases.extend(compress((lock.release,), map(lock.acquire, (True,), (timeout_s,))))


def release_noted(releases: list[Callable[[], None]]) -> None:
    """Release what was noted and forget it, by one call into C; may be repeated."""
    with suppress(IndexError):
        deque(map(call, iter(releases.pop, None)), maxlen=0)
