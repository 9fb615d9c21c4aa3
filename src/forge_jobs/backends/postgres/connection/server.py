"""Runs all calls to the server: with a pooled connection, a time limit and mapped errors.

``ask`` runs one statement in its own transaction, ``within`` several in one. Deadlocks and
serialization failures are retried. A connection that broke while it was idle is replaced and the
call retried, as long as nothing was sent that could have committed.
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
from .driver import Driver, Row, Transaction
from .pool import Pool, PoolClosed

T = TypeVar("T")

CALL_S: Final = 30.0
URGENT_S: Final = 5.0
_TRIES: Final = 6
_PAUSE_S: Final = 0.02


class Link:
    """A connection while one call uses it.

    ``may_have_committed``: a statement that commits was sent. ``timed_out``: the limit has passed.
    """

    __slots__ = ("driver", "may_have_committed", "timed_out")

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.may_have_committed = False
        self.timed_out = False

    def time_out(self) -> None:
        """Close the connection at the time limit: the waiting call gets a connection error."""
        self.timed_out = True
        self.driver.terminate()

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]:
        """Run a statement inside the call's transaction."""
        return await self.driver.fetch(query, *args)

    async def row(self, query: str, *args: Any) -> Row | None:
        """Run a statement and return its first row, if any."""
        rows = await self.driver.fetch(query, *args)
        return rows[0] if rows else None


class DedicatedConnection:
    """A connection outside the pool, made to listen, that also runs small statements."""

    def __init__(self, driver: Driver, *, pooled: bool) -> None:
        self.driver = driver
        self._pooled = pooled
        self.loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()

    def is_usable(self) -> bool:
        """Whether it is open and belongs to the running event loop."""
        return self.loop is asyncio.get_running_loop() and not self.driver.is_closed()

    @asynccontextmanager
    async def block(self) -> AsyncGenerator[None, None]:
        """Exclusive use. Behind a pooler also a transaction, which pins one server process."""
        async with self._lock:
            if not self._pooled:
                yield
                return
            transaction = Transaction(self.driver, pooled=True)
            await transaction.start()
            yield
            await transaction.commit()

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]:
        """Run one statement within ``URGENT_S``; a connection that fails is terminated."""
        try:
            async with asyncio.timeout(URGENT_S), self.block():
                return await self.driver.fetch(query, *args)
        except BaseException:
            # Statements here are small and rare: reconnecting is simpler than checking its state.
            self.driver.terminate()
            raise


class Server:
    """The database at an address. ``opened``: the store is open, calls are allowed. ``line``: the
    connection that listens, while there is one."""

    def __init__(self, address: Address, clock: Clock, entropy: Entropy) -> None:
        self.address = address
        self.clock = clock
        self.entropy = entropy
        self.store_clock = StoreClock(clock)
        self.pool = Pool(self._connect)
        self.opened = False
        self.pooled = bool(address.pooled)
        self.line: DedicatedConnection | None = None
        self._major: int | None = None

    async def ask(
        self, query: str, *args: Any, writes: bool = True, limit_s: float = CALL_S
    ) -> Sequence[Row]:
        """Run one statement in its own transaction. ``writes`` False: it may be repeated."""
        if self.pooled:
            return await self.within(
                lambda link: link.fetch(query, *args), writes=writes, limit_s=limit_s
            )

        def run(link: Link) -> Awaitable[Sequence[Row]]:
            link.may_have_committed = writes
            return link.driver.fetch(query, *args)

        return await self._call(run, limit_s)

    async def ask_row(self, query: str, *args: Any, writes: bool = True) -> Row | None:
        """Run one statement and return its first row, if any."""
        rows = await self.ask(query, *args, writes=writes)
        return rows[0] if rows else None

    async def ask_urgent(self, query: str, *args: Any) -> Sequence[Row]:
        """Run one small statement that may be repeated and must not wait for a pooled connection:
        on the connection that listens, if that belongs to this event loop."""
        line = self.line
        if line is not None and line.is_usable():
            try:
                return await line.fetch(query, *args)
            except Exception as error:
                if not error_mapping.is_lost(error):
                    raise error_mapping.translated(
                        error, location=self.address.location, may_have_committed=False
                    ) from error
        return await self.ask(query, *args, writes=False, limit_s=URGENT_S)

    async def within(
        self,
        work: Callable[[Link], Awaitable[T]],
        *,
        writes: bool = True,
        limit_s: float = CALL_S,
    ) -> T:
        """Run ``work`` in one transaction. A retry calls it again from its start."""

        async def run(link: Link) -> T:
            transaction = Transaction(link.driver, pooled=self.pooled)
            await transaction.start()
            try:
                answer = await work(link)
            except Exception as error:
                if not error_mapping.is_lost(error):
                    await transaction.rollback()
                raise
            link.may_have_committed = writes
            await transaction.commit()
            return answer

        return await self._call(run, limit_s)

    async def _call(self, run: Callable[[Link], Awaitable[T]], limit_s: float) -> T:
        if not self.opened:
            raise error_mapping.closed(self.address.location)
        for attempt in range(_TRIES):
            link, used = self._idle_link(), True
            if link is None:
                link, used = await self._acquire_link(limit_s)
            # A bare timer: asyncio.timeout is a measurable part of a small call's cost (0096).
            limit = asyncio.get_running_loop().call_later(limit_s, link.time_out)
            try:
                try:
                    answer = await run(link)
                finally:
                    # Before the release: afterwards another call may use the connection.
                    limit.cancel()
            except Exception as raised:
                error = TimeoutError() if link.timed_out else raised
                lost = error_mapping.is_lost(error)
                self.pool.release(link.driver, broken=lost)
                stale = (
                    lost
                    and used
                    and not link.may_have_committed
                    and not isinstance(error, TimeoutError)
                )
                if attempt + 1 < _TRIES and (error_mapping.may_repeat(error) or stale):
                    await self.clock.sleep(_PAUSE_S * attempt * (0.5 + self.entropy.roll()))
                    continue
                if isinstance(error, ForgeError):
                    raise
                raise error_mapping.translated(
                    error,
                    location=self.address.location,
                    may_have_committed=link.may_have_committed,
                ) from error
            except GeneratorExit:
                # The event loop was closed while this call ran: the pool ends what that loop had.
                raise
            except BaseException:
                # Cancelled, or a signal handler raised here: nobody reads the reply.
                self.pool.release(link.driver, broken=True)
                raise
            self.pool.release(link.driver)
            return answer
        raise AssertionError("the last try returns or raises")

    def _idle_link(self) -> Link | None:
        """An idle connection with nothing unread on its socket: the common case; no await."""
        driver = self.pool.acquire_idle()
        if driver is None:
            return None
        if driver.is_closed() or drivers.has_unread_data(driver):
            self.pool.release(driver)
            return None
        return Link(driver)

    async def _acquire_link(self, limit_s: float) -> tuple[Link, bool]:
        """A connection that has not ended as far as the client can see; True if it was used
        before."""
        while True:
            driver, used = await self._acquire(limit_s)
            if not used:
                return Link(driver), False
            try:
                ended = await drivers.has_ended(driver)
            except BaseException:
                self.pool.release(driver)
                raise
            if not ended:
                return Link(driver), True
            self.pool.release(driver, broken=True)

    async def _acquire(self, limit_s: float) -> tuple[Driver, bool]:
        try:
            async with asyncio.timeout(limit_s):
                return await self.pool.acquire()
        except TimeoutError as error:
            raise Unavailable(
                f"{self.address.location}: no connection came free within {limit_s:.0f} s"
            ) from error
        except PoolClosed as error:
            raise error_mapping.closed(self.address.location) from error

    async def _connect(self) -> Driver:
        return await self.connect(pooled=self.pooled)

    async def connect(
        self, *, pooled: bool, listening: bool = False, database: str | None = None
    ) -> Driver:
        """A new connection outside the pool; errors say whether the address is wrong.

        A server that is too old is refused here, before any statement is sent to it.
        """
        dsn = self.address.listen_dsn if listening else self.address.dsn
        if database is not None:
            dsn = self.address.at_database(database)
        try:
            driver = await drivers.connect(
                dsn, pooled=pooled, many_hosts=self.address.many_hosts, major=self._major
            )
        except Exception as error:
            # Perhaps another server answers now, which does not know some setting of the last one.
            self._major = None
            raise error_mapping.cannot_connect(
                error,
                location=self.address.location,
                database=database or self.address.database,
                first=not self.opened,
            ) from error
        self._major = driver.get_server_version()[0]
        if self._major < error_mapping.OLDEST_SERVER:
            version = driver.get_settings().server_version
            driver.terminate()
            raise ServerTooOld(self.address.location, version, error_mapping.OLDEST_SERVER)
        return driver
