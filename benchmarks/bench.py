"""What a measure may use: temporary stores, agents of the installed systems, the size of the run.

Every store lives under one temporary directory that is removed at the end, whatever happens.
"""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks import postgres
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.processes import Agent, AgentError, search_path, start_child
from benchmarks.systems import MODULES, OURS, installed
from tests.postgres.server import PrivateServer

OPEN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much to do: the whole measurement, or a smoke run that only proves the frame works."""

    rounds: int
    quick: bool

    def jobs(self, whole: int, quick: int) -> int:
        return quick if self.quick else whole

    def pairs_a_round(self, at_least: int = 15) -> int:
        """Alternating windows in a round, so that all rounds together have at least 15."""
        return 1 if self.quick else -(-at_least // self.rounds)


@dataclass(slots=True)
class Bench:
    """The surroundings of a run."""

    size: Size
    home: Path
    systems: frozenset[str]
    facts: list[str] = field(default_factory=list[str])
    _number: Iterator[int] = field(default_factory=itertools.count)
    _ends: ExitStack = field(default_factory=ExitStack)
    _server: PrivateServer | None = None

    def has(self, system: str) -> bool:
        return system in self.systems

    def say(self, fact: str) -> None:
        """Keep a fact for the report, once."""
        if fact not in self.facts:
            self.facts.append(fact)

    @contextmanager
    def store(self) -> Iterator[Path]:
        """A fresh directory for one store, removed afterwards to keep the disk's state alike."""
        path = self.home / f"store-{next(self._number)}"
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def database(self) -> Iterator[Path]:
        """The directory of a fresh database on the Postgres server of this run."""
        if self._server is None:
            self._server = self._ends.enter_context(
                postgres.open_server(durable=not self.size.quick)
            )
            self.say(f"Postgres, read back: {postgres.facts(self._server)}")
        with self.store() as store, postgres.database(self._server, store):
            yield store

    def close(self) -> None:
        """End the server, if one was needed."""
        self._ends.close()

    def agent(
        self,
        system: str,
        store: Path,
        synchronous: str,
        *,
        flags: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        source: Path | None = None,
    ) -> Agent:
        """Start a process for `system`; it has opened its store when this returns.

        `source`: the folder with the package to measure, if not the installed one.
        """
        arguments = ["benchmarks.agent", system, str(store), synchronous, *flags]
        path = {} if source is None else {"PYTHONPATH": search_path(source)}
        child = start_child(arguments, self.home / f"{system}.log", {**path, **(environment or {})})
        agent = Agent(child, f"{system} ({synchronous.upper()})")
        try:
            opened = agent.event("open", OPEN_SECONDS)
            if source is not None and not Path(opened["package"]).is_relative_to(source):
                raise AgentError(f"measured {opened['package']}, not the package in {source}")
        except BaseException:
            agent.close()
            raise
        return agent


class Measure(Protocol):
    """One thing to measure: prepare, run rounds, check what is left, judge."""

    name: str
    title: str

    def setup(self, bench: Bench) -> None: ...

    def round(self, bench: Bench, number: int) -> list[Figure]: ...

    def verify(self, bench: Bench) -> list[str]: ...

    def judge(self, series: Series) -> list[Outcome]: ...


@contextmanager
def open_bench(size: Size, chosen: frozenset[str] | None = None) -> Iterator[Bench]:
    """A bench with every installed system (or those of `chosen`), and a home that goes away."""
    systems = frozenset(name for name in MODULES if installed(name))
    home = Path(tempfile.mkdtemp(prefix="forge-bench-"))
    bench = Bench(size, home, systems if chosen is None else systems & chosen)
    try:
        yield bench
    finally:
        bench.close()
        shutil.rmtree(home, ignore_errors=True)


def prepare_database(store: Path) -> None:
    """The same for everyone before the clock starts: statistics, and the log folded in."""
    for path in databases(store):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("ANALYZE")
        finally:
            connection.close()
    truncate_log(store)


def truncate_log(store: Path) -> None:
    """Move the write-ahead log into the database and leave it empty."""
    for path in databases(store):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()


def databases(store: Path) -> list[Path]:
    return [*store.rglob("*.db"), *store.rglob("*.sqlite3")]


def in_turn(items: list[str], number: int) -> list[str]:
    """The order of a round: rotated, so that nobody is always first or always after the same."""
    shift = number % len(items) if items else 0
    return items[shift:] + items[:shift]


__all__ = [
    "OURS",
    "Bench",
    "Measure",
    "Size",
    "in_turn",
    "open_bench",
    "prepare_database",
    "truncate_log",
]
