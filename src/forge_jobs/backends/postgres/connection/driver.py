"""The part of asyncpg that this backend uses, as typed protocols, and work on its transports.

asyncpg is imported by the first connection only, so that parsing an address needs no driver.
"""

import asyncio
import contextlib
import os
import select
import socket
import stat
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from forge_jobs.core.errors import NotWritable

from . import session
from .fork_lock import FORK_LOCK, BegunUnderLock

CONNECT_S = 10.0
CLOSE_S = 2.0
# A role's own statement timeout holds until the transaction has begun: on a busy machine one of a
# millisecond cancels BEGIN and ROLLBACK now and then. They have no effect then and are repeated.
_MAX_BEGINS = 20
_QUERY_CANCELED = "57014"
_CACHED_STATEMENTS = 200
# Iterations of the event loop that read the end of a connection and then close it.
_END_ITERATIONS = 3


class Row(Protocol):
    """A result row: by position or by name."""

    def __getitem__(self, key: int | str) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


class ServerSettings(Protocol):
    """Settings that the server reported when the connection was opened."""

    @property
    def server_version(self) -> str: ...


class Driver(Protocol):
    """One connection of asyncpg."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def get_server_pid(self) -> int: ...
    def get_server_version(self) -> tuple[int, ...]: ...
    def get_settings(self) -> ServerSettings: ...


class Transaction:
    """A transaction block on a connection. ``pooled``: the connection has no settings of its own,
    so the transaction begins with them (see ``session``)."""

    def __init__(self, driver: Driver, *, pooled: bool) -> None:
        self._driver = driver
        self._pooled = pooled

    async def start(self) -> None:
        driver = self._driver
        if not self._pooled:
            await driver.execute("BEGIN")
            return
        begin = session.begin_statement(driver.get_server_version()[0])
        for last in (*[False] * (_MAX_BEGINS - 1), True):
            try:
                await driver.execute(begin)
                return
            except Exception as error:
                # The connection must not stay in a transaction that began without its settings.
                if not driver.is_closed():
                    await self.rollback()
                if last or not _is_cancelled(error):
                    raise

    async def commit(self) -> None:
        await self._driver.execute("COMMIT")

    async def rollback(self) -> None:
        for last in (*[False] * (_MAX_BEGINS - 1), True):
            try:
                await self._driver.execute("ROLLBACK")
                return
            except Exception as error:
                if last or not _is_cancelled(error):
                    raise


def _is_cancelled(error: Exception) -> bool:
    return getattr(error, "sqlstate", None) == _QUERY_CANCELED


async def connect(
    dsn: str,
    *,
    pooled: bool,
    many_hosts: bool = False,
    major: int | None = None,
    timeout_s: float = CONNECT_S,
) -> Driver:
    """A new connection. ``major``: the version of the server, if it is known.

    Behind a pooler no prepared statement may outlive its transaction, and no settings can be given.
    With several hosts it connects to the one that takes writes.
    """
    asyncpg = _driver_module()
    extra: Mapping[str, Any] = {}
    if many_hosts and "target_session_attrs" not in dsn:
        extra = {"target_session_attrs": "read-write"}
    connecting: Coroutine[Any, Any, Driver] = asyncpg.connect(
        dsn,
        timeout=timeout_s,
        statement_cache_size=0 if pooled else _CACHED_STATEMENTS,
        max_cacheable_statement_size=0,
        max_cached_statement_lifetime=0,
        server_settings={
            "application_name": "forge-jobs",
            **({} if pooled else session.startup_parameters(major)),
        },
        **extra,
    )
    return await BegunUnderLock(connecting)


async def close(driver: Driver, *, timeout_s: float = CLOSE_S) -> None:
    """Close a connection; one that cannot be closed in time, or by a task that is cancelled
    meanwhile, is terminated. None is left to the garbage collector."""
    try:
        await driver.close(timeout=timeout_s)
    except Exception:
        driver.terminate()
    except BaseException:
        driver.terminate()
        raise


def has_unread_data(driver: Driver) -> bool:
    """Whether data arrived on an idle connection that its event loop has not read yet."""
    transport = _transport(driver)
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def has_ended(driver: Driver) -> bool:
    """Whether an idle connection has ended. Unread data is most likely its end: the event loop runs
    as many iterations as it needs to process that."""
    if has_unread_data(driver):
        for _ in range(_END_ITERATIONS):
            await next_iteration()
    return driver.is_closed()


async def next_iteration() -> None:
    """Wait for the next iteration of the event loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_soon(resolve, future)
    await future


async def wait_s(seconds: float) -> None:
    """Wait on the event loop's own timers."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, resolve, future)
    await future


def resolve(future: "asyncio.Future[None]") -> None:
    """Wake the task that waits for a future, unless it was cancelled."""
    if not future.done():
        future.set_result(None)


def force_close(driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
    """Close a connection from outside its event loop, which may be stopped or closed."""
    transport = _transport(driver)
    if loop.is_running():
        # Its loop will read the end of the stream; anything else here would not be thread-safe.
        shut_down(transport)
        return
    with contextlib.suppress(Exception):
        driver.terminate()
    if loop.is_closed():
        # A closed loop runs no callbacks, so the transport's last one is called here.
        with contextlib.suppress(Exception):
            transport._call_connection_lost(None)


def shut_down(transport: Any) -> None:
    """End a connection for everybody who reads from it, on any thread."""
    with contextlib.suppress(Exception):
        transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def plain_socket(driver: Driver) -> tuple[Any, socket.socket] | None:
    """The transport of a connection and its socket, which does not block; None with TLS, or where
    the event loop has no such socket."""
    transport: Any = getattr(driver, "_transport", None)
    if transport is None or transport.is_closing() or hasattr(transport, "_ssl_protocol"):
        return None
    plain = getattr(transport.get_extra_info("socket"), "_sock", None)
    return (transport, plain) if isinstance(plain, socket.socket) else None


def disown(driver: Driver) -> None:
    """In a forked child: the connection is the parent's. It must neither be used nor closed, also
    not by the garbage collector, which would unregister it from the parent's epoll.

    The child's descriptor is redirected to the null device. That sends nothing; but as long as the
    child kept the socket open, the server would not see the end of the parent.
    """
    transport = _transport(driver)
    _disowned.append((driver, transport))
    with contextlib.suppress(AttributeError):
        driver.__setattr__("_aborted", True)
    with contextlib.suppress(Exception):
        if not transport.is_closing():
            _redirect_to_null(transport.get_extra_info("socket").fileno())


def _redirect_to_null(descriptor: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    # The number stays in use: code that still holds it cannot reach another file by it.
    os.dup2(null, descriptor, inheritable=False)
    os.close(null)


_disowned: list[object] = []


def _transport(driver: Driver) -> Any:
    """The transport with the socket: below TLS, if the connection uses it."""
    outer = getattr(driver, "_transport", None)
    return getattr(getattr(outer, "_ssl_protocol", None), "_transport", outer)


def _driver_module() -> Any:
    try:
        with FORK_LOCK.lock:
            return import_module("asyncpg")
    except ImportError as error:
        raise NotWritable(
            "the Postgres store needs the driver asyncpg: pip install 'forge-jobs[postgres]'"
        ) from error
