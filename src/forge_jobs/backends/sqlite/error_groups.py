"""Error groups in the file: counted by the transaction of a failure, read by queries."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from forge_jobs.backends.shared import error_groups
from forge_jobs.backends.shared.error_groups import FailedAttempt, Worker
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.error_groups import ErrorGroup, reopened, resolved
from forge_jobs.core.instant import Instant

from .counters import Execute
from .json_text import as_json

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "error_groups.sql")
groups_of = msgspec.json.Decoder(list[ErrorGroup]).decode


class StoredGroups:
    """``GroupTable`` inside a write transaction."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def load(self, ids: Iterable[str]) -> dict[str, ErrorGroup]:
        (found,) = self._execute(SQL["load"], (as_json(list(ids)),)).fetchone()
        return {group.id: group for group in groups_of(found)}

    def put(self, groups: Sequence[ErrorGroup]) -> None:
        if groups:
            values = [(group.id, group.last_at, as_json(group)) for group in groups]
            self._execute(SQL["put"], (as_json(values),))

    def size(self) -> int:
        return self._execute(SQL["size"]).fetchone()[0]

    def purge(self, before: Instant, limit: int) -> int:
        return self._execute(SQL["purge"], (before, max(limit, 0))).rowcount


def count(execute: Execute, failures: Sequence[tuple[int, FailedAttempt]], now: Instant) -> None:
    """Count the failed attempts of a transaction, and store their groups with their jobs."""
    execute(SQL["set_groups"], (as_json([(key, one.group.id) for key, one in failures]),))
    attempts = [attempt for _, attempt in failures]
    error_groups.count(StoredGroups(execute), attempts, now, partial(_worker, execute))


def seen(since: Instant, connection: sqlite3.Connection) -> list[ErrorGroup]:
    """The groups with a failure since then, newest first."""
    return groups_of(connection.execute(SQL["seen"], (since,)).fetchone()[0])


def get(group_id: str, connection: sqlite3.Connection) -> ErrorGroup | None:
    """One group."""
    return StoredGroups(connection.execute).load([group_id]).get(group_id)


def resolve(execute: Execute, group_ids: Sequence[str], now: Instant, by: str) -> int:
    """Mark groups as resolved."""
    return _change(execute, group_ids, partial(resolved, at=now, by=by))


def reopen(execute: Execute, group_ids: Sequence[str]) -> int:
    """Remove the mark of groups."""
    return _change(execute, group_ids, reopened)


def _change(
    execute: Execute, group_ids: Sequence[str], change: Callable[[ErrorGroup], ErrorGroup]
) -> int:
    table = StoredGroups(execute)
    found = table.load(group_ids)
    table.put([change(group) for group in found.values()])
    return len(found)


def _worker(execute: Execute, owner: int) -> Worker:
    found = execute(SQL["worker"], (owner,)).fetchone()
    return Worker() if found is None else Worker(*found)
