"""Listens for notifications of all queues, on one connection per process.

The connection is trusted only after a test notification arrived: a pooler in transaction mode
accepts LISTEN and delivers nothing. In that case a timer notifies the listeners (polling). A
connection that breaks is replaced; all listeners are notified then, for what they may have missed.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Final

from forge_jobs.backends.postgres import sql_files
from forge_jobs.backends.postgres.connection.driver import (
    Driver,
    Transaction,
    close,
    disown,
    force_close,
)
from forge_jobs.backends.postgres.connection.server import DedicatedConnection, Server
from forge_jobs.store.store import Notify

from . import claim_turns
from .claim_turns import ClaimTurns
from .notifier import EVERYBODY, Listener, Notifier

_LOG: Final = logging.getLogger("forge_jobs.postgres")
_PROBE: Final = "probe:"
PROBE_S: Final = 2.0
CHECK_S: Final = 15.0
POLL_S: Final = 0.25
RETRY_LISTEN_S: Final = 60.0
_CLOSE_S: Final = 2.0
_BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

# State a forked child inherited from its parent. Referenced for ever, so that the garbage collector
# of the child does not finalize it.
_inherited: Final[list[object]] = []


class NotificationListener:
    """The listening task of one store. It runs on the event loop of one of its subscribers."""

    def __init__(self, server: Server, notifier: Notifier, turns: ClaimTurns) -> None:
        self._server = server
        self._notifier = notifier
        self._turns = turns
        self._delayed: dict[str, asyncio.TimerHandle] = {}
        self._guard = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver | None = None
        self._probe: asyncio.Future[None] | None = None
        self._token = ""
        self._notify = sql_files.statements("jobs", server.address.schema)["notify"]
        # "listening", "polling" or "off".
        self.state = "off"

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> "PostgresSubscription":
        """Call ``notify`` for these queues until the subscription is closed."""
        loop = asyncio.get_running_loop()
        listener = Listener(frozenset(queues), notify, loop)
        self._notifier.add(listener)
        self._ensure(loop)
        return PostgresSubscription(self, listener)

    async def unsubscribe(self, listener: Listener) -> None:
        """Remove a listener. The task ends with the last one."""
        self._notifier.remove(listener)
        if not self._notifier.listeners():
            await self.close()

    async def close(self) -> None:
        """End the task and its connection. Subscriptions that stay open get only notifications of
        this process."""
        with self._guard:
            task, loop = self._task, self._loop
            self._task = self._loop = None
        if task is None or loop is None:
            return
        if loop is asyncio.get_running_loop():
            await _cancel(task)
        elif loop.is_running():
            there = asyncio.run_coroutine_threadsafe(_cancel(task), loop)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(there), _CLOSE_S)
        else:
            self._force_close(loop)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

    async def round_trip_s(self) -> float | None:
        """How long a notification takes, on two new connections; None: it did not arrive."""
        server = self._server
        arrived = asyncio.Event()
        token = f"{_PROBE}{server.entropy.bits(64):x}"
        listening = await server.connect(pooled=True, listening=True)
        try:
            sending = await server.connect(pooled=True)
        except BaseException:
            listening.terminate()
            raise
        try:
            async with asyncio.timeout(PROBE_S):
                await listening.add_listener(
                    server.address.channel,
                    lambda *args: arrived.set() if args[3] == token else None,
                )
                transaction = Transaction(sending, pooled=True)
                await transaction.start()
                await sending.fetch(self._notify, server.address.channel, token)
                sent_at = server.clock.mono()
                await transaction.commit()
                await arrived.wait()
                return server.clock.mono() - sent_at
        except TimeoutError:
            return None
        finally:
            listening.terminate()
            sending.terminate()

    def after_fork(self) -> None:
        """In a forked child: the task and its connection belong to the parent."""
        if self._driver is not None:
            disown(self._driver)
        self._guard = threading.Lock()
        _inherited.append((self._task, self._delayed))
        self._task = self._loop = self._driver = None
        self._delayed = {}
        self.state = "off"

    def _ensure(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._guard:
            if self._task is not None and self._loop is not None:
                if not self._loop.is_closed():
                    return
                self._force_close(self._loop)
            self._loop = loop
            self._task = loop.create_task(self._run())
            self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        """Its event loop ends: start the task anew on the loop of another subscriber."""
        with self._guard:
            if self._task is not task:
                return
            self._task = self._loop = None
        here = task.get_loop()
        for listener in self._notifier.listeners():
            if listener.loop is not here and listener.loop.is_running():
                with contextlib.suppress(RuntimeError):
                    listener.loop.call_soon_threadsafe(self._ensure, listener.loop)
                    return

    async def _run(self) -> None:
        tries = 0
        while True:
            try:
                await self._listen_once()
                tries = 0
            except Exception as error:
                _LOG.debug("listening failed: %s", error)
            self.state = "off"
            pause_s = _BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)]
            tries += 1
            await self._server.clock.sleep(pause_s * (0.5 + self._server.entropy.roll()))

    async def _listen_once(self) -> None:
        """Connect and listen, or poll, until the connection is lost."""
        server = self._server
        pooled = server.pooled and server.address.listen_dsn == server.address.dsn
        driver = self._driver = await server.connect(pooled=pooled, listening=True)
        line = DedicatedConnection(driver, pooled=pooled)
        # Timers may be left from an event loop that was closed while the task ran.
        self._cancel_delayed()
        try:
            lost = asyncio.Event()
            driver.add_termination_listener(lambda *_: self._on_lost(lost))
            async with asyncio.timeout(PROBE_S), line.block():
                await driver.add_listener(server.address.channel, self._on_notification)
            server.line = line
            # Notifications from before LISTEN were missed.
            self._notifier.notify_local([EVERYBODY])
            if await self._probe_arrives():
                self.state = "listening"
                await self._check_until_lost(line, lost)
            else:
                self.state = "polling"
                _LOG.warning(
                    "notifications do not arrive through %s: polling instead; give the address of "
                    "the server itself as listen_url",
                    server.address.location,
                )
                await self._poll(lost)
        except GeneratorExit:
            # The event loop was closed while this task ran: nothing can be awaited any more.
            force_close(driver, line.loop)
            raise
        finally:
            server.line = None
            self._cancel_delayed()
            if not driver.is_closed():
                await close(driver, timeout_s=1.0)
            if self._driver is driver:
                self._driver = None

    def _cancel_delayed(self) -> None:
        """Cancel delayed notifications: the next connection notifies all listeners anyway."""
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()

    def _force_close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connection of an event loop that does not run any more."""
        driver, self._driver = self._driver, None
        if driver is not None:
            force_close(driver, loop)

    async def _probe_arrives(self) -> bool:
        """Whether a notification sent over another connection arrives here."""
        self._token = f"{_PROBE}{self._server.entropy.bits(64):x}"
        self._probe = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PROBE_S):
                await self._server.ask(
                    self._notify, self._server.address.channel, self._token, writes=False
                )
                await self._probe
        except TimeoutError:
            return False
        finally:
            self._probe = None
        return True

    def _on_lost(self, lost: asyncio.Event) -> None:
        lost.set()
        if self._probe is not None and not self._probe.done():
            # Says nothing about notifications: connect again.
            self._probe.set_exception(ConnectionResetError("lost while it was tested"))

    async def _check_until_lost(self, line: DedicatedConnection, lost: asyncio.Event) -> None:
        """Run a statement every ``CHECK_S``: a vanished peer is noticed only by sending."""
        while not lost.is_set():
            try:
                async with asyncio.timeout(CHECK_S):
                    await lost.wait()
            except TimeoutError:
                await line.fetch("SELECT 1")

    async def _poll(self, lost: asyncio.Event) -> None:
        clock = self._server.clock
        for _ in range(int(RETRY_LISTEN_S / POLL_S)):
            if lost.is_set():
                return
            self._notifier.notify_local([EVERYBODY])
            await clock.sleep(POLL_S)

    def _on_notification(self, _driver: object, _pid: int, _channel: str, text: str) -> None:
        if text.startswith(_PROBE):
            if text == self._token and self._probe is not None and not self._probe.done():
                self._probe.set_result(None)
        elif (single := claim_turns.decode(text)) is not None:
            self._on_single_job(*single)
        else:
            self._notifier.notify_local(text.split(","))

    def _on_single_job(self, queue: str, number: int) -> None:
        wait_s = self._turns.wait_s(queue, number)
        if not wait_s:
            self._notifier.notify_local([queue])
        elif queue not in self._delayed:
            loop = asyncio.get_running_loop()
            self._delayed[queue] = loop.call_later(wait_s, self._notify_delayed, queue)

    def _notify_delayed(self, queue: str) -> None:
        del self._delayed[queue]
        self._notifier.notify_local([queue])


class PostgresSubscription:
    """One subscription."""

    def __init__(self, owner: NotificationListener, listener: Listener) -> None:
        self._owner = owner
        self._listener = listener

    async def close(self) -> None:
        await self._owner.unsubscribe(self._listener)


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
