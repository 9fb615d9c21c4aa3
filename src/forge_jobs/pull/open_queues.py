"""Queues of this process that are open: their idle claim leases end when the program does."""

import atexit
import contextlib
import weakref
from typing import Protocol


class OpenQueue(Protocol):
    """A queue whose registration can be removed."""

    def deregister_idle(self) -> None:
        """Remove its claim leases that hold no job."""
        ...


def deregister_at_exit(queue: OpenQueue) -> None:
    """Remove the idle claim leases of this queue when the interpreter ends."""
    _OPEN_QUEUES.add(queue)


_OPEN_QUEUES: "weakref.WeakSet[OpenQueue]" = weakref.WeakSet()


def _at_exit() -> None:
    for queue in list(_OPEN_QUEUES):
        # Errors at exit help nobody: an idle claim lease expires by itself.
        with contextlib.suppress(Exception):
            queue.deregister_idle()


atexit.register(_at_exit)
