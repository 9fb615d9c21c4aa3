"""Reads back how durable a system's commits really are, whatever its settings claim.

`synchronous` belongs to a connection, so a second connection cannot see it. In an audited child
every connection made by `sqlite3.connect` is watched: asked for its level when it opens, every
change of the pragma is followed, and each commit that wrote is counted under the level in force.
A watched connection is only ever asked in the thread that opens it: while a statement runs in
another thread, that thread holds the connection and waits for the interpreter to trace, so a
question from here would wait for it with the interpreter in hand. Tracing costs time: audited runs
are never timed.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
NAMES = {name: name for name in LEVELS.values()} | {str(k): v for k, v in LEVELS.items()}
connect_unwatched: Callable[..., sqlite3.Connection] = sqlite3.connect
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


@dataclass(slots=True)
class Watched:
    """One connection: the level in force, whether a transaction is open and whether it wrote."""

    level: str
    inside: bool = False
    wrote: bool = False


@dataclass(slots=True)
class Commits:
    """Commits that wrote something, by the `synchronous` level in force when they were made."""

    by_level: Counter[str] = field(default_factory=Counter[str])
    files: set[str] = field(default_factory=set[str])

    def watch(self, connection: sqlite3.Connection) -> None:
        level = connection.execute("PRAGMA synchronous").fetchone()[0]
        for _, _, file in connection.execute("PRAGMA database_list"):
            self.files.add(file)
        one = Watched(LEVELS.get(level, str(level)))
        connection.set_trace_callback(lambda statement: self._see(one, statement))

    def _see(self, one: Watched, statement: str) -> None:
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
        """Counts by level, and the journal mode of each file, which any connection can tell."""
        journals = {journal_mode(file) for file in self.files if file}
        return {"commits": dict(self.by_level), "journal": sorted(journals)}


def journal_mode(file: str) -> str:
    with closing(connect_unwatched(file)) as connection:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]


def install() -> Commits:
    """Replace `sqlite3.connect` for this process; call before the system is imported."""
    commits = Commits()

    def watched_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect_unwatched(*arguments, **options)
        commits.watch(connection)
        return connection

    sqlite3.connect = watched_connect
    sqlite3.dbapi2.connect = watched_connect  # pyright: ignore[reportAttributeAccessIssue]
    return commits
