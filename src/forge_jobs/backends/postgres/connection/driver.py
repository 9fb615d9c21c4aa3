"""The little of asyncpg that is used here, with types, in one place.

asyncpg is imported by the first connection only, so that reading an address needs no driver.
"""

import asyncio
import contextlib
import os
import select
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from forge_jobs.core.errors import NotWritable

CONNECT_S = 10.0
IDLE_IN_TRANSACTION_S = 30.0
_CACHED_STATEMENTS = 200
# Reading the end of a connection, and closing it after that.
_TURNS = 3
_IMPORT_S = 5.0


class Row(Protocol):
    """A result row: by position or by name."""

    def __getitem__(self, key: int | str) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


class DriverTransaction(Protocol):
    """An open transaction block."""

    async def start(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class ServerSettings(Protocol):
    """What the server said of itself when the connection was made."""

    @property
    def server_version(self) -> str: ...


class Driver(Protocol):
    """One connection of asyncpg."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    def transaction(self) -> DriverTransaction: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def get_server_pid(self) -> int: ...
    def get_server_version(self) -> tuple[int, ...]: ...
    def get_settings(self) -> ServerSettings: ...


async def connect(
    dsn: str, *, pooled: bool, many_hosts: bool = False, timeout_s: float = CONNECT_S
) -> Driver:
    """A new connection.

    Behind a pooler no prepared statement may outlive its transaction; with several hosts the one
    that takes writes is wanted. A process that is stopped in the middle of a transaction must not
    hold its locks for ever: the server ends such a session. (A pooler would refuse to be told.)
    """
    asyncpg = _driver_module()
    more: Mapping[str, Any] = {}
    if many_hosts and "target_session_attrs" not in dsn:
        more = {"target_session_attrs": "read-write"}
    made = await asyncpg.connect(
        dsn,
        timeout=timeout_s,
        statement_cache_size=0 if pooled else _CACHED_STATEMENTS,
        max_cacheable_statement_size=0,
        max_cached_statement_lifetime=0,
        server_settings=(
            {"application_name": "forge-jobs"}
            if pooled
            else {
                "application_name": "forge-jobs",
                "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S:.0f}s",
            }
        ),
        **more,
    )
    return cast("Driver", made)


def has_news(driver: Driver) -> bool:
    """Whether something arrived on an idle connection that its loop has not read yet."""
    wire = _wire(driver)
    if wire is None or wire.is_closing():
        return True
    news = select.poll()
    news.register(wire.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(news.poll(0))


async def has_ended(driver: Driver) -> bool:
    """Whether an idle connection is over. News are most likely its end: the loop gets the turns it
    needs to see it."""
    if has_news(driver):
        for _ in range(_TURNS):
            await turn()
    return driver.is_closed()


async def turn() -> None:
    """Let the event loop go round once."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()
    loop.call_soon(flush_news, came)
    await came


def flush_news(future: "asyncio.Future[None]") -> None:
    """Give whoever waits the word, unless they went away."""
    if not future.done():
        future.set_result(None)


def cut(driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
    """End a connection from outside its event loop, which may be over."""
    wire = _wire(driver)
    if loop.is_running():
        # Its own loop will see the end of it; nothing else of a running loop may be touched.
        with contextlib.suppress(Exception):
            wire.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return
    with contextlib.suppress(Exception):
        driver.terminate()
    if loop.is_closed():
        # A closed loop calls nobody any more, so the last step of its transport is taken here.
        with contextlib.suppress(Exception):
            wire._call_connection_lost(None)


def disown(driver: Driver) -> None:
    """In a forked child: the connection is the parent's. It must neither be used nor closed, also
    not by the garbage collector, which would take it out of the parent's event loop.

    The child's descriptor is made to lead nowhere. Nothing is sent by that; but while the child
    kept it, the server would not see the end of the parent.
    """
    wire = _wire(driver)
    _disowned.append((driver, wire))
    with contextlib.suppress(AttributeError):
        driver.__setattr__("_aborted", True)
    with contextlib.suppress(Exception):
        if not wire.is_closing():
            _lead_nowhere(wire.get_extra_info("socket").fileno())


def _lead_nowhere(descriptor: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    # The number stays taken, so that whoever still knows it can do no harm with it.
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


_disowned: list[object] = []


def _wire(driver: Driver) -> Any:
    """The transport with the socket, below TLS if there is any."""
    transport = getattr(driver, "_transport", None)
    return getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)


def _driver_module() -> Any:
    try:
        with _importing.lock:
            return import_module("asyncpg")
    except ImportError as error:
        raise NotWritable(
            "the Postgres store needs the driver asyncpg: pip install 'forge-jobs[postgres]'"
        ) from error


class _Importing:
    """A child that is forked while another thread imports the driver could never import it: a fork
    waits for the end of that, but not for ever."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.lock = threading.RLock()

    def before_fork(self) -> None:
        self.lock.acquire(timeout=_IMPORT_S)

    def after_fork_in_parent(self) -> None:
        # An error says that the wait was in vain and another thread has the lock.
        with contextlib.suppress(RuntimeError):
            self.lock.release()


_importing = _Importing()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.before_fork,
        after_in_parent=_importing.after_fork_in_parent,
        after_in_child=_importing.renew,
    )
