"""The gateway's own tables in the SQLite file of its job store."""

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from telegram_gateway.flood import SendLimit

from .contract import QuarantinedBody, Reply

T = TypeVar("T")
_BUSY_S: Final = 5.0
# Longer than a transaction may wait for the file's lock.
_FORK_S: Final = 8.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS gateway_session (user_id INTEGER PRIMARY KEY, until INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS gateway_wrong_code (user_id INTEGER NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS gateway_wrong_code_user ON gateway_wrong_code (user_id, at);
CREATE TABLE IF NOT EXISTS gateway_quarantined (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, bot_id TEXT NOT NULL,
    reason TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL
);
-- Of release 0.1, which writes it still during a rolling upgrade.
CREATE TABLE IF NOT EXISTS gateway_quarantine (
    at INTEGER NOT NULL, bot_id TEXT NOT NULL, body BLOB NOT NULL
);
INSERT INTO gateway_quarantined (at, bot_id, reason, size, body)
    SELECT at, bot_id, 'stored by release 0.1', length(body), body FROM gateway_quarantine;
DELETE FROM gateway_quarantine;
CREATE TABLE IF NOT EXISTS gateway_update_kind (bot_id TEXT PRIMARY KEY, kind TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS gateway_queue_slots (queue TEXT PRIMARY KEY, slots INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS gateway_flood (key TEXT PRIMARY KEY, level INTEGER NOT NULL)
    WITHOUT ROWID;
"""


_connections: "list[weakref.ref[_SqliteConnection]]" = []
_inherited: Final[list[sqlite3.Connection]] = []


class _SqliteConnection:
    """One connection, used by one thread at a time, with one setting of ``synchronous``."""

    def __init__(self, path: str, *, synchronous: str) -> None:
        self._path = path
        self._synchronous = synchronous
        self._connection: sqlite3.Connection | None = None
        self._reset_locks()
        _connections[:] = [connection for connection in _connections if connection() is not None]
        _connections.append(weakref.ref(self))

    def _reset_locks(self) -> None:
        self._lock = asyncio.Lock()
        self._thread_lock = threading.Lock()
        self._fork_locked = False

    async def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run a change in a transaction, on a thread."""

        def transaction(tx: sqlite3.Connection) -> T:
            tx.execute("BEGIN IMMEDIATE")
            try:
                found = change(tx)
                tx.execute("COMMIT")
            except BaseException:
                if tx.in_transaction:
                    tx.execute("ROLLBACK")
                raise
            return found

        return await self.run(transaction)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work on a thread. A caller that is cancelled while it waits for the lock gives up its
        place; after that it returns too, but the lock is held until the work has ended."""
        await self._lock.acquire()

        async def run_and_release() -> T:
            try:
                return await asyncio.to_thread(self._run_locked, work)
            finally:
                self._lock.release()

        return await asyncio.shield(asyncio.ensure_future(run_and_release()))

    async def close(self) -> None:
        async with self._lock:
            with self._thread_lock:
                self._close_connection()

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # No connection may be open during a fork: SQLite's record of its file locks would be copied,
    # the locks themselves would not. Parent and child open a new connection at the next use.

    def before_fork(self) -> None:
        self._fork_locked = self._thread_lock.acquire(timeout=_FORK_S)
        if self._fork_locked:
            self._close_connection()

    def after_fork_in_parent(self) -> None:
        if self._fork_locked:
            self._fork_locked = False
            self._thread_lock.release()

    def after_fork_in_child(self) -> None:
        if self._connection is not None:
            # Closing it in the child would release the parent's file locks.
            _inherited.append(self._connection)
            self._connection = None
        self._reset_locks()

    def _run_locked(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._thread_lock:
            return work(self._open_connection())

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return self._connection


class SqliteGatewayStore:
    """Two connections, so that reading a session does not wait for the send limits."""

    def __init__(self, path: str) -> None:
        self._path = path
        # The response to the webhook acknowledges that a change is durable.
        self._durable = _SqliteConnection(path, synchronous="FULL")
        # Losing a level in a power failure is harmless, so commits do not wait for the disk.
        self._flood = _SqliteConnection(path, synchronous="NORMAL")

    async def probe(self) -> None:
        if await asyncio.to_thread(_check_file, self._path):
            await self._durable.run(lambda tx: tx.execute("PRAGMA schema_version").fetchone())

    async def open(self) -> None:
        await self._durable.run(lambda tx: tx.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;"))

    async def close(self) -> None:
        await self._durable.close()
        await self._flood.close()

    async def session_until(self, user_id: int, now: int) -> int | None:
        text = "SELECT until FROM gateway_session WHERE user_id = ? AND until > ?"
        row = await self._durable.run(lambda tx: tx.execute(text, (user_id, now)).fetchone())
        return None if row is None else int(row[0])

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("INSERT OR REPLACE INTO gateway_session VALUES (?, ?)", (user_id, until))
            tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = ?", (user_id,))
            reply.enqueue_in(tx)

        await self._durable.write(change)

    async def end_session(self, user_id: int, reply: Reply) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("DELETE FROM gateway_session WHERE user_id = ?", (user_id,))
            reply.enqueue_in(tx)

        await self._durable.write(change)

    async def delete_user(self, user_id: int) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("DELETE FROM gateway_session WHERE user_id = ?", (user_id,))
            tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = ?", (user_id,))

        await self._durable.write(change)

    async def wrong_codes(self, user_id: int, since: int) -> int:
        text = "SELECT count(*) FROM gateway_wrong_code WHERE user_id = ? AND at >= ?"
        row = await self._durable.run(lambda tx: tx.execute(text, (user_id, since)).fetchone())
        return int(row[0])

    async def record_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("INSERT INTO gateway_wrong_code VALUES (?, ?)", (user_id, at))
            reply.enqueue_in(tx)

        await self._durable.write(change)

    async def quarantine(self, bot_id: str, at: int, body: bytes, *, reason: str, size: int) -> int:
        text = "INSERT INTO gateway_quarantined VALUES (NULL, ?, ?, ?, ?, ?)"
        row = (at, bot_id, reason, size, body)
        return await self._durable.write(lambda tx: tx.execute(text, row).lastrowid or 0)

    async def quarantined(self, *, bot_id: str | None, limit: int) -> list[QuarantinedBody]:
        text = (
            "SELECT * FROM gateway_quarantined "
            "WHERE ?1 IS NULL OR bot_id = ?1 ORDER BY id DESC LIMIT ?2"
        )
        rows = await self._durable.run(lambda tx: tx.execute(text, (bot_id, limit)).fetchall())
        return [QuarantinedBody(*row) for row in rows]

    async def quarantined_body(self, number: int) -> QuarantinedBody | None:
        text = "SELECT * FROM gateway_quarantined WHERE id = ?"
        row = await self._durable.run(lambda tx: tx.execute(text, (number,)).fetchone())
        return None if row is None else QuarantinedBody(*row)

    async def delete_quarantined(self, number: int) -> None:
        text = "DELETE FROM gateway_quarantined WHERE id = ?"
        await self._durable.write(lambda tx: tx.execute(text, (number,)))

    async def assign_update_kind(self, bot_id: str, candidates: Sequence[str]) -> dict[str, str]:
        def change(tx: sqlite3.Connection) -> dict[str, str]:
            for kind in candidates:
                # Ignored if the bot has a kind, or the kind a bot.
                text = "INSERT OR IGNORE INTO gateway_update_kind VALUES (?, ?)"
                tx.execute(text, (bot_id, kind))
            return dict(tx.execute("SELECT bot_id, kind FROM gateway_update_kind").fetchall())

        return await self._durable.write(change)

    async def queue_slots(self) -> dict[str, int]:
        text = "SELECT queue, slots FROM gateway_queue_slots"
        return dict(await self._durable.run(lambda tx: tx.execute(text).fetchall()))

    async def record_queue_slots(self, queue: str, slots: int) -> None:
        text = "INSERT OR REPLACE INTO gateway_queue_slots VALUES (?, ?)"
        await self._durable.write(lambda tx: tx.execute(text, (queue, slots)))

    async def acquire(self, wanted: Sequence[SendLimit], now: int) -> int:
        read = "SELECT level FROM gateway_flood WHERE key = ?"

        def change(tx: sqlite3.Connection) -> int:
            levels: list[tuple[str, int]] = []
            for one in wanted:
                row = tx.execute(read, (one.key,)).fetchone()
                level, wait = one.after_send(None if row is None else row[0], now)
                if wait:
                    return wait
                levels.append((one.key, level))
            tx.executemany("INSERT OR REPLACE INTO gateway_flood VALUES (?, ?)", levels)
            return 0

        return await self._flood.write(change) if wanted else 0

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        def change(tx: sqlite3.Connection) -> int:
            sessions = tx.execute("DELETE FROM gateway_session WHERE until <= ?", (now,))
            codes = tx.execute("DELETE FROM gateway_wrong_code WHERE at < ?", (wrong_before,))
            text = "DELETE FROM gateway_quarantined WHERE at < ?"
            bodies = tx.execute(text, (quarantine_before,))
            # A limit with its full burst available is equivalent to a missing row.
            tx.execute("DELETE FROM gateway_flood WHERE level <= ?", (now,))
            return sessions.rowcount + codes.rowcount + bodies.rowcount

        return await self._durable.write(change)


def _check_file(name: str) -> bool:
    """Whether the file exists. Raises OSError if it could not be used or created."""
    path = os.path.abspath(name)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise OSError(f"{folder} is not a directory: create it, or choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"{folder} is not writable for this user")
    if not os.path.exists(path):
        return False
    if not os.access(path, os.R_OK | os.W_OK):
        raise OSError(f"{path} is not readable and writable for this user")
    return True


def _for_each_connection(step: Callable[[_SqliteConnection], None]) -> None:
    for reference in _connections[:]:
        connection = reference()
        if connection is not None:
            step(connection)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _for_each_connection(_SqliteConnection.before_fork),
        after_in_parent=lambda: _for_each_connection(_SqliteConnection.after_fork_in_parent),
        after_in_child=lambda: _for_each_connection(_SqliteConnection.after_fork_in_child),
    )
