"""One connection per process that hears notifications for all its queues.

It is believed only after a notification of its own came back: a pooler in transaction mode accepts
LISTEN and delivers nothing. Then, and while there is no connection, listeners are rung by a timer.
A connection that breaks is replaced; listeners are rung after that, for what they may have missed.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Final

from forge_jobs.backends.postgres import sql_files
from forge_jobs.backends.postgres.connection.driver import Driver, cut, disown
from forge_jobs.backends.postgres.connection.server import OwnLine, Server
from forge_jobs.store.store import Notify

from . import claim_turns as turn
from .claim_turns import ClaimTurns
from .notifier import EVERYBODY, Listener, Notifier

_LOG: Final = logging.getLogger("forge_jobs.postgres")
_PROBE: Final = "probe:"
PROBE_S: Final = 2.0
CHECK_S: Final = 15.0
POLL_S: Final = 0.25
TRY_AGAIN_S: Final = 60.0
_CLOSE_S: Final = 2.0
_BACK_OFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

# What a forked child got from its parent and must leave alone.
_parents: Final[list[object]] = []


class NotificationListener:
    """The listening of one store. It runs on the event loop of one of its subscribers."""

    def __init__(self, server: Server, bell: Notifier, turns: ClaimTurns) -> None:
        self._server = server
        self._bell = bell
        self._turns = turns
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._guard = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver | None = None
        self._probe: asyncio.Future[None] | None = None
        self._token = ""
        self._notify = sql_files.statements("jobs", server.address.schema)["notify"]
        # What people may ask: "listening", "polling" or "off".
        self.state = "off"

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> "PostgresSubscription":
        """Ring for these queues until the subscription is closed."""
        loop = asyncio.get_running_loop()
        listener = Listener(frozenset(queues), notify, loop)
        self._bell.add(listener)
        self._ensure(loop)
        return PostgresSubscription(self, listener)

    async def unsubscribe(self, listener: Listener) -> None:
        """The last one to go ends the listening."""
        self._bell.remove(listener)
        if not self._bell.listeners():
            await self.close()

    async def close(self) -> None:
        """End the connection; subscriptions stay and are only rung from within."""
        with self._guard:
            task, loop = self._task, self._loop
            self._task = self._loop = None
        if task is None or loop is None:
            return
        if loop is asyncio.get_running_loop():
            await _cancelled(task)
        elif loop.is_running():
            there = asyncio.run_coroutine_threadsafe(_cancelled(task), loop)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(there), _CLOSE_S)
        else:
            self._cut(loop)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

    async def round_trip_s(self) -> float | None:
        """How long a notification takes, on connections made for the question; None: for ever."""
        server = self._server
        heard = asyncio.Event()
        token = f"{_PROBE}{server.entropy.bits(64):x}"
        listening = await server.connect(pooled=True, listening=True)
        try:
            speaking = await server.connect(pooled=True)
        except BaseException:
            listening.terminate()
            raise
        try:
            async with asyncio.timeout(PROBE_S):
                await listening.add_listener(
                    server.address.channel,
                    lambda *said: heard.set() if said[3] == token else None,
                )
                transaction = speaking.transaction()
                await transaction.start()
                await speaking.fetch(self._notify, server.address.channel, token)
                began = server.clock.mono()
                await transaction.commit()
                await heard.wait()
                return server.clock.mono() - began
        except TimeoutError:
            return None
        finally:
            listening.terminate()
            speaking.terminate()

    def after_fork(self) -> None:
        """The task and its connection belong to the parent."""
        if self._driver is not None:
            disown(self._driver)
        self._guard = threading.Lock()
        _parents.append((self._task, self._later))
        self._task = self._loop = self._driver = None
        self._later = {}
        self.state = "off"

    def _ensure(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._guard:
            if self._task is not None and self._loop is not None:
                if not self._loop.is_closed():
                    return
                self._cut(self._loop)
            self._loop = loop
            self._task = loop.create_task(self._run())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Its loop ends: somebody else's loop takes over."""
        with self._guard:
            if self._task is not task:
                return
            self._task = self._loop = None
        here = task.get_loop()
        for listener in self._bell.listeners():
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
            pause = _BACK_OFF_S[min(tries, len(_BACK_OFF_S) - 1)]
            tries += 1
            await self._server.clock.sleep(pause * (0.5 + self._server.entropy.roll()))

    async def _listen_once(self) -> None:
        """Until the connection is lost."""
        server = self._server
        pooled = server.pooled and server.address.listen_dsn == server.address.dsn
        driver = self._driver = await server.connect(pooled=pooled, listening=True)
        line = OwnLine(driver, pooled=pooled)
        # Of an event loop that was closed over it something may be left.
        self._forget_later()
        try:
            lost = asyncio.Event()
            driver.add_termination_listener(lambda *_: lost.set())
            async with asyncio.timeout(PROBE_S), line.block():
                await driver.add_listener(server.address.channel, self._heard)
            server.line = line
            # Whatever happened before this moment was not heard.
            self._bell.heard([EVERYBODY])
            if await self._answers():
                self.state = "listening"
                await self._watch(line, lost)
            else:
                self.state = "polling"
                _LOG.warning(
                    "notifications do not arrive through %s: polling instead; give the address of "
                    "the server itself as listen_url",
                    server.address.place,
                )
                await self._poll(lost)
        except GeneratorExit:
            # The loop was closed over this task: nothing can be awaited any more.
            cut(driver, line.loop)
            raise
        finally:
            server.line = None
            self._forget_later()
            await _let_go(driver)
            if self._driver is driver:
                self._driver = None

    def _forget_later(self) -> None:
        """Whoever listens next rings everybody anyway."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()

    def _cut(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the connection of a loop that runs no more."""
        driver, self._driver = self._driver, None
        if driver is not None:
            cut(driver, loop)

    async def _answers(self) -> bool:
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

    async def _watch(self, line: OwnLine, lost: asyncio.Event) -> None:
        """A connection whose other end vanished says nothing: ask it now and then."""
        while not lost.is_set():
            try:
                async with asyncio.timeout(CHECK_S):
                    await lost.wait()
            except TimeoutError:
                await line.fetch("SELECT 1")

    async def _poll(self, lost: asyncio.Event) -> None:
        clock = self._server.clock
        for _ in range(int(TRY_AGAIN_S / POLL_S)):
            if lost.is_set():
                return
            self._bell.heard([EVERYBODY])
            await clock.sleep(POLL_S)

    def _heard(self, _driver: object, _pid: int, _channel: str, text: str) -> None:
        if text.startswith(_PROBE):
            if text == self._token and self._probe is not None and not self._probe.done():
                self._probe.set_result(None)
        elif (single := turn.read(text)) is not None:
            self._heard_of_one(*single)
        else:
            self._bell.heard(text.split(","))

    def _heard_of_one(self, queue: str, lot: int) -> None:
        wait_s = self._turns.wait_s(queue, lot)
        if not wait_s:
            self._bell.heard([queue])
        elif queue not in self._later:
            loop = asyncio.get_running_loop()
            self._later[queue] = loop.call_later(wait_s, self._after_others, queue)

    def _after_others(self, queue: str) -> None:
        del self._later[queue]
        self._bell.heard([queue])


class PostgresSubscription:
    """One subscription."""

    def __init__(self, hearing: NotificationListener, listener: Listener) -> None:
        self._hearing = hearing
        self._listener = listener

    async def close(self) -> None:
        await self._hearing.unsubscribe(self._listener)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _let_go(driver: Driver) -> None:
    if driver.is_closed():
        return
    try:
        await driver.close(timeout=1.0)
    except Exception:
        driver.terminate()
