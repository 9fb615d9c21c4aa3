"""The Postgres server of a run: private, from a wheel, as durable as a production server.

Every store is a database of its own; the directory of a store holds its address in a file, which is
how a child process learns it. All systems meet the same settings, read back and printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg

if TYPE_CHECKING:
    from tests.postgres.server import PrivateServer

ADDRESS = "url"
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_connections": "200",
    # No checkpoint in the middle of a window.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}
SHOWN = ("server_version", "fsync", "full_page_writes", "synchronous_commit", "shared_buffers")


def address(store: Path) -> str:
    """The address of a store, from its directory."""
    return (store / ADDRESS).read_text()


def pid(store: Path) -> int:
    """The first process of the server a store is on."""
    return int((store / "pid").read_text())


@contextmanager
def open_server(*, durable: bool) -> Iterator[PrivateServer]:
    """A smoke run needs no fsync; nobody looks at its figures."""
    # Imported by whoever starts a server: agents load this module too, and it brings pytest along.
    from tests.postgres.server import private_server

    fast = {} if durable else {"fsync": "off", "full_page_writes": "off"}
    with private_server(**{**SETTINGS, **fast}) as server:
        yield server


def facts(server: PrivateServer) -> str:
    """What the server says about itself."""
    told = [server.sql(f"SHOW {name}").strip() for name in SHOWN]
    return ", ".join(f"{name} {value}" for name, value in zip(SHOWN, told, strict=True))


@contextmanager
def database(server: PrivateServer, store: Path) -> Iterator[Path]:
    """A fresh database behind the directory `store`; it is gone afterwards."""
    name = "bench_" + store.name.replace("-", "_")
    server.sql(f"CREATE DATABASE {name}")
    (store / ADDRESS).write_text(server.url(database=name))
    (store / "pid").write_text(str(server.pid))
    try:
        yield store
    finally:
        server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def prepare_tables(store: Path) -> None:
    """The same for everyone before the clock starts: dead rows away, statistics, a checkpoint."""
    with psycopg.connect(address(store), autocommit=True) as link:
        link.execute("VACUUM ANALYZE")
        link.execute("CHECKPOINT")


def ask(store: Path, query: str) -> list[tuple[Any, ...]]:
    """One statement over a connection of its own."""
    with psycopg.connect(address(store), autocommit=True) as link:
        return link.execute(query.encode()).fetchall()


class Meter:
    """Processor seconds of the server's processes since `begin`, without autovacuum."""

    def __init__(self, store: Path) -> None:
        self._first = pid(store)
        self._before: dict[int, float] = {}

    def begin(self) -> None:
        self._before = self._read()

    def seconds(self) -> float:
        """Of the processes that are there now: a connection must not be closed in between."""
        now = self._read()
        return sum(value - self._before.get(process, 0.0) for process, value in now.items())

    def _read(self) -> dict[int, float]:
        times: dict[int, float] = {}
        for process in psutil.Process(self._first).children():
            try:
                if "autovacuum worker" not in " ".join(process.cmdline()):
                    times[process.pid] = spent(process)
            except (psutil.NoSuchProcess, FileNotFoundError):
                continue
        return times


def spent(process: psutil.Process) -> float:
    """Processor seconds so far: to the nanosecond where the system keeps them, else by ticks."""
    try:
        tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError, ValueError):
        times: Any = process.cpu_times()
        return times.user + times.system


def await_answer(store: Path, question: str, seconds: float, every: float = 0.002) -> float:
    """Ask until the answer is true; the instant on the shared clock."""
    with psycopg.connect(address(store), autocommit=True) as link:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if link.execute(question.encode(), prepare=True).fetchone() == (True,):
                return time.monotonic()
            time.sleep(every)
    raise TimeoutError(f"still not after {seconds:.0f} s: {question}")
