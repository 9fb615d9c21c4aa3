"""What ``forge.drain()`` returns: a coroutine that synchronous code can run as well."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from forge_jobs.core.errors import Refused

if TYPE_CHECKING:
    from forge_jobs.engine.drain import DrainReport


def has_running_loop() -> bool:
    """Whether an event loop runs on this thread.

    Asked before, not in an ``except`` around, the work: there its errors would name the missing
    loop as what they happened after.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class PendingDrain(Coroutine[Any, Any, "DrainReport"]):
    """A drain that has not started: ``await`` it, or call ``run()`` from synchronous code.

    It takes the place of a coroutine everywhere (``asyncio.run``, ``create_task``, ``gather``).
    Python warns about one that is dropped without either, as about any coroutine.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, "DrainReport"]) -> None:
        self._work = work

    def run(self) -> "DrainReport":
        """Drain now, on an event loop of its own, and return what ran.

        Refused on a thread whose event loop is running: it would wait for itself.
        """
        if not has_running_loop():
            return asyncio.run(self._work)
        self._work.close()
        raise Refused(
            "forge.drain().run() would block the event loop of this thread: "
            "write `await forge.adrain()` instead"
        )

    def __await__(self) -> "Generator[Any, Any, DrainReport]":
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        """As a coroutine's ``send``."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine's ``throw``."""
        return self._work.throw(*error)

    def close(self) -> None:
        """As a coroutine's ``close``."""
        self._work.close()
