"""Notifications for jobs that synchronous callers store on a lent connection (see ``direct``).

The first job of a window of 10 ms is stored and notified by one statement, with the queues of the
jobs that were stored without one since. After the last job of a series the event loop of the I/O
thread sends what is left. While callers go on, that loop only moves its timer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from forge_jobs.kit.entropy import Entropy

from . import claim_turns

EVERYBODY: Final = "*"
WINDOW_S: Final = 0.01
_MAX_BYTES: Final = 7_900
# How long after its window a caller may still come and send the notification itself.
_GRACE_S: Final = 0.005


def joined(names: Collection[str]) -> str:
    """One notification for all these queues."""
    text = ",".join(dict.fromkeys(names))
    return EVERYBODY if len(text) > _MAX_BYTES or EVERYBODY in names else text


class DirectNotifications:
    """What was stored and not notified yet. The methods of callers are used under the lock of the
    lent connection; ``send`` notifies on the event loop."""

    def __init__(self, send: Callable[[Iterable[str]], Awaitable[None]], entropy: Entropy) -> None:
        self._send = send
        self._entropy = entropy
        self._names: dict[str, None] = {}
        self._not_before = 0.0
        self._armed = False
        self._task: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------- a caller's thread

    def text(self, queue: str, loop: asyncio.AbstractEventLoop) -> str | None:
        """The notification to send with a job of this queue; None within the window of the last
        one."""
        now = loop.time()
        if now < self._not_before:
            return None
        self._not_before = now + WINDOW_S
        if self._names:
            return joined([*self._names, queue])
        return claim_turns.encode(queue, self._entropy.roll())

    def sent(self) -> None:
        """That notification was sent, with all that was stored before it."""
        self._names.clear()

    def add(self, queue: str, loop: asyncio.AbstractEventLoop) -> None:
        """A job of this queue was stored without a notification."""
        self._names[queue] = None
        # The event loop clears the flag before it takes the names: one of the two sees the other.
        # It also sets the flag, since a signal handler may raise here.
        if not self._armed:
            loop.call_soon_threadsafe(self._arm, loop)

    # ---------------------------------------------------------------- the event loop

    def take(self) -> list[str]:
        """Remove and return the queues that nobody has notified."""
        self._armed = False
        names: list[str] = []
        while self._names:
            names.append(self._names.popitem()[0])
        return names

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._armed:
            self._armed = True
            self._wait(loop)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        at = self._not_before + _GRACE_S
        if loop.time() < at:
            loop.call_at(at, self._wait, loop)
        elif names := self.take():
            self._task = loop.create_task(self._notify(names))

    async def _notify(self, names: list[str]) -> None:
        await self._send(names)
