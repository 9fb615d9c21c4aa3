"""How every call reaches the server: a connection, a time limit, and an error that says what holds.

``ask`` runs one statement that is a transaction by itself, ``within`` a transaction of several.
Deadlocks and serialization failures are tried again; a connection that broke while it was idle is
replaced unseen as long as nothing was sent that could have had an effect.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from forge_jobs.backends.postgres.store_clock import StoreClock
from forge_jobs.core.errors import ForgeError, ServerTooOld, Unavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

from . import driver as drivers
from . import error_mapping
from .address import Address
from .driver import Driver, Row
from .pool import Pool

T = TypeVar("T")

CALL_S: Final = 30.0
URGENT_S: Final = 5.0
_TRIES: Final = 6
_PAUSE_S: Final = 0.02


class Link:
    """One connection in the hands of one call."""

    __slots__ = ("driver", "exposed", "late")

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.exposed = False
        self.late = False

    def give_up(self) -> None:
        """The time limit is over: whoever waits for an answer hears that the connection is gone."""
        self.late = True
        self.driver.terminate()

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]:
        """Run a statement inside the call's transaction."""
        return await self.driver.fetch(query, *args)

    async def row(self, query: str, *args: Any) -> Row | None:
        """The first row of it, if any."""
        rows = await self.driver.fetch(query, *args)
        return rows[0] if rows else None


class OwnLine:
    """A connection with a purpose of its own that takes small statements besides."""

    def __init__(self, driver: Driver, *, pooled: bool) -> None:
        self.driver = driver
        self._pooled = pooled
        self.loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    def here(self) -> bool:
        """Whether it can be used from the running event loop."""
        return self.loop is asyncio.get_running_loop() and not self.driver.is_closed()

    @asynccontextmanager
    async def block(self) -> AsyncGenerator[None, None]:
        """Its turn, and behind a pooler a transaction: only that keeps the server the same."""
        async with self._turn:
            if not self._pooled:
                yield
                return
            transaction = self.driver.transaction()
            await transaction.start()
            yield
            await transaction.commit()

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]:
        """Run one statement within the limit for urgent ones; a line that fails is cut."""
        try:
            async with asyncio.timeout(URGENT_S), self.block():
                return await self.driver.fetch(query, *args)
        except BaseException:
            # Statements here are small and rare: a new line is simpler than a doubtful one.
            self.driver.terminate()
            raise


class Server:
    """The database behind an address. ``opened`` holds once a first connection was fine."""

    def __init__(self, address: Address, clock: Clock, entropy: Entropy) -> None:
        self.address = address
        self.clock = clock
        self.entropy = entropy
        self.present = StoreClock(clock)
        self.pool = Pool(self._connect)
        self.opened = False
        self.pooled = bool(address.pooled)
        self.line: OwnLine | None = None

    async def ask(
        self, query: str, *args: Any, writes: bool = True, limit_s: float = CALL_S
    ) -> Sequence[Row]:
        """One statement, committed by itself. ``writes`` False: repeating it can do no harm."""
        if self.pooled:
            return await self.within(
                lambda link: link.fetch(query, *args), writes=writes, limit_s=limit_s
            )

        def run(link: Link) -> Awaitable[Sequence[Row]]:
            link.exposed = writes
            return link.driver.fetch(query, *args)

        return await self._call(run, limit_s)

    async def ask_row(self, query: str, *args: Any, writes: bool = True) -> Row | None:
        """The first row of one statement."""
        rows = await self.ask(query, *args, writes=writes)
        return rows[0] if rows else None

    async def ask_urgent(self, query: str, *args: Any) -> Sequence[Row]:
        """One small statement that may be repeated and must not wait behind others: it goes over
        the connection that listens, if that lives on this event loop."""
        line = self.line
        if line is not None and line.here():
            try:
                return await line.fetch(query, *args)
            except Exception as error:
                if not error_mapping.is_lost(error):
                    raise error_mapping.meaning(
                        error, place=self.address.place, exposed=False
                    ) from error
        return await self.ask(query, *args, writes=False, limit_s=URGENT_S)

    async def within(
        self,
        work: Callable[[Link], Awaitable[T]],
        *,
        writes: bool = True,
        limit_s: float = CALL_S,
    ) -> T:
        """Several statements in one transaction. ``work`` may be called again from its start."""

        async def run(link: Link) -> T:
            transaction = link.driver.transaction()
            await transaction.start()
            try:
                answer = await work(link)
            except BaseException as error:
                if not error_mapping.is_lost(error) and not isinstance(
                    error, asyncio.CancelledError
                ):
                    await transaction.rollback()
                raise
            link.exposed = writes
            await transaction.commit()
            return answer

        return await self._call(run, limit_s)

    async def _call(self, run: Callable[[Link], Awaitable[T]], limit_s: float) -> T:
        if not self.opened:
            raise error_mapping.closed(self.address.place)
        for attempt in range(_TRIES):
            link, used = self._at_hand(), True
            if link is None:
                link, used = await self._link(limit_s)
            # A timer alone: asyncio.timeout is a part of the price of a small call (0096).
            limit = asyncio.get_running_loop().call_later(limit_s, link.give_up)
            try:
                try:
                    answer = await run(link)
                finally:
                    # Before the connection goes back: by then it may be somebody else's.
                    limit.cancel()
            except asyncio.CancelledError:
                self.pool.give_back(link.driver, broken=True)
                raise
            except Exception as raised:
                error = TimeoutError() if link.late else raised
                lost = error_mapping.is_lost(error)
                self.pool.give_back(link.driver, broken=lost)
                stale = lost and used and not link.exposed and not isinstance(error, TimeoutError)
                if attempt + 1 < _TRIES and (error_mapping.may_repeat(error) or stale):
                    await self.clock.sleep(_PAUSE_S * attempt * (0.5 + self.entropy.roll()))
                    continue
                if isinstance(error, ForgeError):
                    raise
                raise error_mapping.meaning(
                    error, place=self.address.place, exposed=link.exposed
                ) from error
            self.pool.give_back(link.driver)
            return answer
        raise AssertionError("the last try returns or raises")

    def _at_hand(self) -> Link | None:
        """An idle connection from which nothing was heard since its last call: the common case."""
        driver = self.pool.take_idle()
        if driver is None:
            return None
        if driver.is_closed() or drivers.has_news(driver):
            self.pool.give_back(driver)
            return None
        return Link(driver)

    async def _link(self, limit_s: float) -> tuple[Link, bool]:
        """A connection that is alive as far as this side can know, and whether it is an old one."""
        while True:
            driver, used = await self._take(limit_s)
            if not used:
                return Link(driver), False
            try:
                over = await drivers.has_ended(driver)
            except BaseException:
                self.pool.give_back(driver)
                raise
            if not over:
                return Link(driver), True
            self.pool.give_back(driver, broken=True)

    async def _take(self, limit_s: float) -> tuple[Driver, bool]:
        try:
            async with asyncio.timeout(limit_s):
                return await self.pool.take()
        except TimeoutError as error:
            raise Unavailable(
                f"{self.address.place}: no connection came free within {limit_s:.0f} s"
            ) from error

    async def _connect(self) -> Driver:
        return await self.connect(pooled=self.pooled)

    async def connect(
        self, *, pooled: bool, listening: bool = False, database: str | None = None
    ) -> Driver:
        """A new connection outside the pool; errors say whether the address is wrong.

        A server that is too old is refused here, so that nothing is ever asked of it.
        """
        dsn = self.address.listen_dsn if listening else self.address.dsn
        if database is not None:
            dsn = self.address.at_database(database)
        try:
            driver = await drivers.connect(dsn, pooled=pooled, many_hosts=self.address.many_hosts)
        except Exception as error:
            raise error_mapping.cannot_connect(
                error,
                place=self.address.place,
                database=database or self.address.database,
                first=not self.opened,
            ) from error
        if driver.get_server_version()[0] < error_mapping.OLDEST_SERVER:
            version = driver.get_settings().server_version
            driver.terminate()
            raise ServerTooOld(self.address.place, version, error_mapping.OLDEST_SERVER)
        return driver
