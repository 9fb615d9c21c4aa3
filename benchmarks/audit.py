"""Reads back how durable a system's commits really are, whatever its settings claim.

`synchronous` belongs to a connection, so a second connection cannot see it. In an audited child
every connection made by `sqlite3.connect` is watched: the pragma in force at each commit is
counted and, at the end, read back from the connection itself. Tracing costs time: audited runs
are never timed.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
NAMES = {name: name for name in LEVELS.values()} | {str(k): v for k, v in LEVELS.items()}
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


@dataclass(slots=True)
class Watched:
    """One connection: the level in force, whether a transaction is open and whether it wrote."""

    connection: sqlite3.Connection
    level: str = "FULL"
    inside: bool = False
    silent: bool = False
    wrote: bool = False


@dataclass(slots=True)
class Commits:
    """Commits that wrote something, by the `synchronous` level in force when they were made."""

    by_level: Counter[str] = field(default_factory=Counter[str])
    watched: list[Watched] = field(default_factory=list[Watched])

    def watch(self, connection: sqlite3.Connection) -> None:
        one = Watched(connection)
        self.watched.append(one)
        connection.set_trace_callback(lambda statement: self._see(one, statement))

    def _see(self, one: Watched, statement: str) -> None:
        if one.silent:
            return
        words = statement.strip().rstrip(";").upper().replace("=", " = ").split()
        if not words or words[0].startswith("--"):
            return
        match words[0]:
            case "PRAGMA" if "=" in words and words[1].split(".")[-1] == "SYNCHRONOUS":
                one.level = NAMES.get(words[-1].strip("'\""), words[-1])
            case "BEGIN":
                one.inside, one.wrote = True, False
            case "COMMIT" | "END":
                if one.wrote:
                    self.by_level[one.level] += 1
                one.inside = one.wrote = False
            case "ROLLBACK" if "TO" not in words:
                one.inside = one.wrote = False
            case first if first in WRITES or (first == "WITH" and set(words) & set(WRITES)):
                if one.inside:
                    one.wrote = True
                else:
                    self.by_level[one.level] += 1

    def summary(self) -> dict[str, Any]:
        """Counts by level, and each open connection's own answer to `PRAGMA synchronous`."""
        read_back: Counter[str] = Counter()
        journals: set[str] = set()
        for one in self.watched:
            try:
                one.silent = True
                level = one.connection.execute("PRAGMA synchronous").fetchone()[0]
                journals.add(one.connection.execute("PRAGMA journal_mode").fetchone()[0])
            except sqlite3.Error:
                continue  # closed, or busy in its own thread: its commits are counted all the same
            finally:
                one.silent = False
            read_back[LEVELS.get(level, str(level))] += 1
        return {
            "commits": dict(self.by_level),
            "pragma": dict(read_back),
            "journal": sorted(journals),
        }


def install() -> Commits:
    """Replace `sqlite3.connect` for this process; call before the system is imported."""
    commits = Commits()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def watched_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        options["check_same_thread"] = False
        connection = connect(*arguments[:4], **options)
        commits.watch(connection)
        return connection

    sqlite3.connect = watched_connect
    sqlite3.dbapi2.connect = watched_connect  # pyright: ignore[reportAttributeAccessIssue]
    return commits
