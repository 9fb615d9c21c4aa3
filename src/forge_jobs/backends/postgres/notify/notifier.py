"""Waking workers: the listeners of this process at once, those of others by a notification.

A notification is sent outside the transaction that made the work (one inside would make all such
commits of the whole server wait for each other), the first at once and then at most one per window
for everything that came meanwhile. It is a hint: its failure fails nothing.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from forge_jobs.backends.postgres import sql_files
from forge_jobs.backends.postgres.connection.server import Server
from forge_jobs.core.errors import ForgeError
from forge_jobs.store.store import Notify

from . import claim_turns

EVERYBODY: Final = "*"
_LOG: Final = logging.getLogger("forge_jobs.postgres")
_WINDOW_S: Final = 0.01
_PATIENCE_S: Final = 0.25
_LIMIT_S: Final = 5.0
_MAX_BYTES: Final = 7_900


@dataclass(slots=True, eq=False)
class Listener:
    """Who wants to hear about which queues, and on which event loop it lives."""

    queues: frozenset[str]
    notify: Notify
    loop: asyncio.AbstractEventLoop


class _Sender:
    """What one event loop still has to say, and when it may."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.not_before = 0.0
        self.over = False


class Notifier:
    """Rings listeners near and far."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._guard = threading.Lock()
        self._listeners: list[Listener] = []
        self._senders: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sender] = WeakKeyDictionary()
        self._notify = sql_files.statements("jobs", server.address.schema)["notify"]

    def add(self, listener: Listener) -> None:
        with self._guard:
            self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        with self._guard:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def listeners(self) -> Sequence[Listener]:
        with self._guard:
            return tuple(self._listeners)

    def heard(self, names: Iterable[str]) -> None:
        """Ring the listeners of this process that serve one of these queues."""
        notified = frozenset(names)
        everybody = EVERYBODY in notified
        for listener in self.listeners():
            if everybody or not listener.queues.isdisjoint(notified):
                try:
                    listener.notify()
                except Exception:
                    _LOG.exception("a wake-up failed; the change itself stands")

    async def notify(self, queues: Iterable[str]) -> None:
        """Wake whoever serves these queues; ``EVERYBODY`` after an operator's action.

        Waits only for the first notification of a window, so that a process that ends right after
        its call has sent it; those that follow are on their way.
        """
        names = dict.fromkeys(queues)
        if not names:
            return
        self.heard(names)
        sender = self._sender()
        sender.names.update(names)
        if sender.task is None and sender.timer is None and not self._put_off(sender):
            await asyncio.wait([self._start(sender)], timeout=_PATIENCE_S)

    def give_turn(self, queue: str, jobs: int) -> str | None:
        """The notification for a caller who can send it along with its jobs; None when one was sent
        only just now. The caller says ``heard`` afterwards, and not ``notify``."""
        sender, now = self._sender(), asyncio.get_running_loop().time()
        if sender.task is not None or sender.timer is not None or now < sender.not_before:
            return None
        sender.not_before = now + _WINDOW_S
        return claim_turns.say(queue, self._server.entropy.roll()) if jobs == 1 else queue

    async def flush(self) -> None:
        """Send what this loop has left to say, before its connections are closed."""
        sender = self._senders.get(asyncio.get_running_loop())
        if sender is None:
            return
        sender.over = True
        if sender.task is not None:
            await asyncio.wait([sender.task], timeout=_PATIENCE_S)
        if sender.timer is not None:
            sender.timer.cancel()
            sender.timer = None
        if sender.names:
            await self._say(sender, _PATIENCE_S)
        sender.over = False

    def after_fork(self) -> None:
        """Listeners are threads of the parent."""
        self._guard = threading.Lock()
        self._listeners = []
        self._senders = WeakKeyDictionary()

    def _sender(self) -> _Sender:
        loop = asyncio.get_running_loop()
        sender = self._senders.get(loop)
        if sender is None:
            sender = self._senders[loop] = _Sender()
        return sender

    def _put_off(self, sender: _Sender) -> bool:
        """Leave it to a timer, if the last notification was sent only just now."""
        loop = asyncio.get_running_loop()
        if loop.time() >= sender.not_before:
            return False
        sender.timer = loop.call_at(sender.not_before, self._start, sender)
        return True

    def _start(self, sender: _Sender) -> asyncio.Task[None]:
        sender.timer = None
        sender.task = asyncio.get_running_loop().create_task(self._send(sender))
        return sender.task

    async def _send(self, sender: _Sender) -> None:
        try:
            await self._say(sender)
        finally:
            sender.task = None
            sender.not_before = asyncio.get_running_loop().time() + _WINDOW_S
            if sender.names and not sender.over:
                self._put_off(sender)

    async def _say(self, sender: _Sender, limit_s: float = _LIMIT_S) -> None:
        names, sender.names = sender.names, {}
        text = ",".join(names)
        if EVERYBODY in names or len(text) > _MAX_BYTES:
            text = EVERYBODY
        try:
            await self._server.ask(
                self._notify, self._server.address.channel, text, writes=False, limit_s=limit_s
            )
        except ForgeError as error:
            _LOG.debug("a notification was not sent: %s", error)
