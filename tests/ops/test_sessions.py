"""Sessions in the store: bounded, expiring, and without their tokens."""

import sqlite3
from pathlib import Path

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.ops import sessions
from forge_jobs.ops.sessions import SESSION_LIFETIME_S, Session, Sessions
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

ADA = Session("ada", b"\x00mark\xff")


class SessionHarness:
    """Sessions over a memory store with a movable clock."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(self.clock)
        self.sessions = Sessions(self.ready)

    async def ready(self) -> Store:
        return self.store

    def rows(self) -> int:
        return len(self.store._storage.tables.settings)


@pytest.fixture
def harness() -> SessionHarness:
    return SessionHarness()


async def test_a_session_expires_after_its_lifetime(harness: SessionHarness) -> None:
    text = await harness.sessions.begin("admin", ADA)
    harness.clock.advance(SESSION_LIFETIME_S - 1)
    assert await harness.sessions.find("admin", text) == ADA
    assert await harness.sessions.find("viewer", text) is None
    harness.clock.advance(1)
    assert await harness.sessions.find("admin", text) is None


async def test_expired_sessions_are_purged_at_the_next_login(harness: SessionHarness) -> None:
    for _ in range(20):
        await harness.sessions.begin("viewer", ADA)
    harness.clock.advance(SESSION_LIFETIME_S)
    await harness.sessions.begin("admin", ADA)
    assert harness.rows() == 2, "the key and the last session"


async def test_the_number_of_sessions_of_a_role_is_bounded(
    harness: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    admin = await harness.sessions.begin("admin", ADA)
    texts: list[str] = []
    for _ in range(5):
        harness.clock.advance(1)
        texts.append(await harness.sessions.begin("viewer", ADA))
    found = [await harness.sessions.find("viewer", text) is not None for text in texts]
    assert found == [False, False, True, True, True]
    assert await harness.sessions.find("admin", admin) == ADA


async def test_an_unreadable_row_is_not_a_session(harness: SessionHarness) -> None:
    text = await harness.sessions.begin("admin", ADA)
    [place] = [place for place in harness.store._storage.tables.settings if place[0] != "web"]
    for value in (b"", b"\xff", b"[]", b'{"name": 5}'):
        await harness.store.settings.put(*place, value)
        assert await harness.sessions.find("admin", text) is None


async def test_the_database_holds_no_session_token(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()

    async def ready() -> Store:
        return store

    text = await Sessions(ready).begin("admin", ADA)
    await store.close()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    rows = connection.execute("SELECT namespace, name, value FROM forge_settings").fetchall()
    connection.close()
    assert len(rows) == 2
    assert text.partition(".")[2] not in str(rows)
    [key] = [value for namespace, _, value in rows if namespace == "web"]
    assert (len(key), len(set(key)) > 10) == (32, True)
