"""A lock that every fork waits for: the driver is imported and starts to connect under it.

A child forked in the middle inherits the locks of Python's import and of OpenSSL, held by a thread
that the child does not have: it could never import the driver or open a connection itself.
"""

import contextlib
import os
import threading
from collections.abc import Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

# A fork inside an import that the driver needs too would wait for ever: it goes on after this time.
# Importing takes a second, and several on a busy machine.
_FORK_WAITS_S: Final = 30.0


class _ForkLock:
    """Held by the thread that imports the driver, begins to connect or forks."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.RLock()

    def before_fork(self) -> None:
        self.lock.acquire(timeout=_FORK_WAITS_S)

    def after_fork_in_parent(self) -> None:
        # RuntimeError: the wait timed out, and another thread holds the lock.
        with contextlib.suppress(RuntimeError):
            self.lock.release()


class BegunUnderLock(Generic[T]):
    """Awaits a coroutine whose part before its first wait runs under the lock. asyncpg creates the
    TLS context of a connection in that part."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        try:
            with FORK_LOCK.lock:
                waited_for = work.send(None)
            while True:
                try:
                    sent = yield waited_for
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:
                    waited_for = work.throw(error)
                else:
                    waited_for = work.send(sent)
        except StopIteration as ended:
            return ended.value


FORK_LOCK: Final = _ForkLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_LOCK.before_fork,
        after_in_parent=FORK_LOCK.after_fork_in_parent,
        after_in_child=FORK_LOCK.reset,
    )
    # Registered twice: a signal may interrupt the first call at its start, and the lock would stay
    # held for ever.
    os.register_at_fork(after_in_parent=FORK_LOCK.after_fork_in_parent)
