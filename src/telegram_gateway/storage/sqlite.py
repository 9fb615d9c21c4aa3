"""The gateway's tables in the SQLite file of its queue."""

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from telegram_gateway.flood import Allowance

from .contract import Reply

T = TypeVar("T")
_BUSY_S: Final = 5.0
# As long as a transaction may wait for another one, and some more.
_FORK_S: Final = 8.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS gateway_session (user_id INTEGER PRIMARY KEY, until INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS gateway_wrong_code (user_id INTEGER NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS gateway_wrong_code_user ON gateway_wrong_code (user_id, at);
CREATE TABLE IF NOT EXISTS gateway_quarantine (
    at INTEGER NOT NULL, bot_id TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS gateway_flood (key TEXT PRIMARY KEY, level INTEGER NOT NULL)
    WITHOUT ROWID;
"""


_lines: "list[weakref.ref[_Line]]" = []
_parents: Final[list[sqlite3.Connection]] = []


class _Line:
    """One connection, used by one thread at a time, with one promise about the disk."""

    def __init__(self, path: str, *, synchronous: str) -> None:
        self._path = path
        self._synchronous = synchronous
        self._connection: sqlite3.Connection | None = None
        self._renew()
        _lines[:] = [line for line in _lines if line() is not None]
        _lines.append(weakref.ref(self))

    def _renew(self) -> None:
        self._turn = asyncio.Lock()
        self._use = threading.Lock()
        self._stopped = False

    async def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in a transaction."""

        def whole(tx: sqlite3.Connection) -> T:
            tx.execute("BEGIN IMMEDIATE")
            try:
                found = change(tx)
                tx.execute("COMMIT")
            except BaseException:
                if tx.in_transaction:
                    tx.execute("ROLLBACK")
                raise
            return found

        return await self.run(whole)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it. Who is cancelled while waiting for the turn leaves the line; who is cancelled
        after that leaves, too, but the turn ends with the work only."""
        await self._turn.acquire()

        async def held() -> T:
            try:
                return await asyncio.to_thread(self._used, work)
            finally:
                self._turn.release()

        return await asyncio.shield(asyncio.ensure_future(held()))

    async def close(self) -> None:
        async with self._turn:
            with self._use:
                self._shut()

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # No connection may be open during a fork: SQLite's view of the locks on the file would be
    # copied, the locks would not. The next use opens a new one, in parent and child.

    def before_fork(self) -> None:
        self._stopped = self._use.acquire(timeout=_FORK_S)
        if self._stopped:
            self._shut()

    def after_fork_in_parent(self) -> None:
        if self._stopped:
            self._stopped = False
            self._use.release()

    def after_fork_in_child(self) -> None:
        if self._connection is not None:
            # Closing it would damage the file for the parent.
            _parents.append(self._connection)
            self._connection = None
        self._renew()

    def _used(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._use:
            return work(self._ready())

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return self._connection


class SqliteGatewayStore:
    """Two connections: who asks for a session does not wait while messages are counted."""

    def __init__(self, path: str) -> None:
        # The answer at the door promises that a change is kept.
        self._own = _Line(path, synchronous="FULL")
        # A level that a power cut takes back is worth no wait for the disk.
        self._flood = _Line(path, synchronous="NORMAL")

    async def open(self) -> None:
        await self._own.run(lambda tx: tx.executescript(_TABLES))

    async def close(self) -> None:
        await self._own.close()
        await self._flood.close()

    async def session_until(self, user_id: int, now: int) -> int | None:
        text = "SELECT until FROM gateway_session WHERE user_id = ? AND until > ?"
        row = await self._own.run(lambda tx: tx.execute(text, (user_id, now)).fetchone())
        return None if row is None else int(row[0])

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("INSERT OR REPLACE INTO gateway_session VALUES (?, ?)", (user_id, until))
            tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = ?", (user_id,))
            reply.enqueue_in(tx)

        await self._own.write(change)

    async def end_session(self, user_id: int, reply: Reply) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("DELETE FROM gateway_session WHERE user_id = ?", (user_id,))
            reply.enqueue_in(tx)

        await self._own.write(change)

    async def forget_user(self, user_id: int) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("DELETE FROM gateway_session WHERE user_id = ?", (user_id,))
            tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = ?", (user_id,))

        await self._own.write(change)

    async def wrong_codes(self, user_id: int, since: int) -> int:
        text = "SELECT count(*) FROM gateway_wrong_code WHERE user_id = ? AND at >= ?"
        row = await self._own.run(lambda tx: tx.execute(text, (user_id, since)).fetchone())
        return int(row[0])

    async def note_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        def change(tx: sqlite3.Connection) -> None:
            tx.execute("INSERT INTO gateway_wrong_code VALUES (?, ?)", (user_id, at))
            reply.enqueue_in(tx)

        await self._own.write(change)

    async def quarantine(self, bot_id: str, at: int, body: bytes) -> None:
        text = "INSERT INTO gateway_quarantine VALUES (?, ?, ?)"
        await self._own.write(lambda tx: tx.execute(text, (at, bot_id, body)))

    async def take(self, wanted: Sequence[Allowance], now: int) -> int:
        read = "SELECT level FROM gateway_flood WHERE key = ?"

        def change(tx: sqlite3.Connection) -> int:
            levels: list[tuple[str, int]] = []
            for one in wanted:
                row = tx.execute(read, (one.key,)).fetchone()
                level, wait = one.after(None if row is None else row[0], now)
                if wait:
                    return wait
                levels.append((one.key, level))
            tx.executemany("INSERT OR REPLACE INTO gateway_flood VALUES (?, ?)", levels)
            return 0

        return await self._flood.write(change) if wanted else 0

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        def change(tx: sqlite3.Connection) -> int:
            gone = tx.execute("DELETE FROM gateway_session WHERE until <= ?", (now,)).rowcount
            old = tx.execute("DELETE FROM gateway_wrong_code WHERE at < ?", (wrong_before,))
            bad = tx.execute("DELETE FROM gateway_quarantine WHERE at < ?", (quarantine_before,))
            # What has filled up again says nothing that a missing row would not say.
            tx.execute("DELETE FROM gateway_flood WHERE level <= ?", (now,))
            return gone + old.rowcount + bad.rowcount

        return await self._own.write(change)


def _each(step: Callable[[_Line], None]) -> None:
    for known in _lines[:]:
        line = known()
        if line is not None:
            step(line)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _each(_Line.before_fork),
        after_in_parent=lambda: _each(_Line.after_fork_in_parent),
        after_in_child=lambda: _each(_Line.after_fork_in_child),
    )
