"""Wakes workers: listeners of this process directly, those of other processes by NOTIFY.

A NOTIFY is sent outside the transaction that stored the jobs: inside, it would serialize all such
commits of the whole server. The first is sent at once, then at most one per window of 10 ms, for
all queues named meanwhile. A NOTIFY that fails fails no call: workers also poll.
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
from .direct_notifications import EVERYBODY, WINDOW_S, DirectNotifications, joined

_LOG: Final = logging.getLogger("forge_jobs.postgres")
_MAX_WAIT_S: Final = 0.25
_TIMEOUT_S: Final = 5.0


@dataclass(slots=True, eq=False)
class Listener:
    """A callback for notifications of some queues, and the event loop of its subscriber."""

    queues: frozenset[str]
    notify: Notify
    loop: asyncio.AbstractEventLoop


class _Sender:
    """The unsent notifications of one event loop. ``not_before``: when the next window begins;
    ``closing``: the loop ends, so no timer may be set."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.not_before = 0.0
        self.closing = False


class Notifier:
    """Notifies listeners of this process and of other processes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._guard = threading.Lock()
        self._listeners: list[Listener] = []
        self._senders: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sender] = WeakKeyDictionary()
        # Of the jobs that synchronous callers store on a lent connection.
        self.direct = DirectNotifications(self.notify, server.entropy)
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

    def notify_local(self, names: Iterable[str]) -> None:
        """Notify the listeners of this process that serve one of these queues."""
        notified = frozenset(names)
        everybody = EVERYBODY in notified
        for listener in self.listeners():
            if everybody or not listener.queues.isdisjoint(notified):
                try:
                    listener.notify()
                except Exception:
                    _LOG.exception("a listener's callback failed; the change itself is stored")

    async def notify(self, queues: Iterable[str]) -> None:
        """Notify the workers of these queues; ``EVERYBODY`` after an operator's action.

        Waits only for the first notification of a window, so that a process that ends right after
        its call has sent it. Later ones are sent in the background.
        """
        names = dict.fromkeys(queues)
        if not names:
            return
        self.notify_local(names)
        sender = self._sender()
        sender.names.update(names)
        if sender.task is None and sender.timer is None and not self._defer(sender):
            await asyncio.wait([self._start(sender)], timeout=_MAX_WAIT_S)

    def inline_text(self, queue: str, jobs: int) -> str | None:
        """The notification for a caller that sends it in the same round trip as its jobs; None
        within the window of the last one. Such a caller calls ``notify_local`` afterwards instead
        of ``notify``."""
        sender, now = self._sender(), asyncio.get_running_loop().time()
        if sender.task is not None or sender.timer is not None or now < sender.not_before:
            return None
        sender.not_before = now + WINDOW_S
        return claim_turns.encode(queue, self._server.entropy.roll()) if jobs == 1 else queue

    async def flush(self) -> None:
        """Send the unsent notifications of this event loop, before its connections are closed."""
        sender = self._sender()
        sender.closing = True
        sender.names.update(dict.fromkeys(self.direct.take()))
        if sender.task is not None:
            await asyncio.wait([sender.task], timeout=_MAX_WAIT_S)
        if sender.timer is not None:
            sender.timer.cancel()
            sender.timer = None
        if sender.names:
            await self._send_names(sender, _MAX_WAIT_S)
        sender.closing = False

    def after_fork(self) -> None:
        """In a forked child: the listeners belong to the parent."""
        self._guard = threading.Lock()
        self._listeners = []
        self._senders = WeakKeyDictionary()
        self.direct = DirectNotifications(self.notify, self._server.entropy)

    def _sender(self) -> _Sender:
        loop = asyncio.get_running_loop()
        sender = self._senders.get(loop)
        if sender is None:
            sender = self._senders[loop] = _Sender()
        return sender

    def _defer(self, sender: _Sender) -> bool:
        """Set a timer for the next window, if the last notification was within this one. Returns
        whether it was."""
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
            await self._send_names(sender)
        finally:
            sender.task = None
            sender.not_before = asyncio.get_running_loop().time() + WINDOW_S
            if sender.names and not sender.closing:
                self._defer(sender)

    async def _send_names(self, sender: _Sender, limit_s: float = _TIMEOUT_S) -> None:
        names, sender.names = sender.names, {}
        values = (self._server.address.channel, joined(names))
        try:
            await self._server.ask(self._notify, *values, writes=False, limit_s=limit_s)
        except ForgeError as error:
            _LOG.debug("a notification was not sent: %s", error)
