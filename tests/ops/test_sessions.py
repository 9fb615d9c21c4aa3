"""Sessions in the store: bounded, gone after their time, and never readable from what is kept."""

import sqlite3
from pathlib import Path

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.ops import sessions
from forge_jobs.ops.sessions import LIFE_S, Session, Sessions
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

ADA = Session("ada", b"\x00mark\xff")


class Desk:
    """Sessions over a memory store whose time can be moved."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(self.clock)
        self.sessions = Sessions(self.ready)

    async def ready(self) -> Store:
        return self.store

    def rows(self) -> int:
        return len(self.store._tables.settings)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_session_lasts_its_time_and_no_longer(desk: Desk) -> None:
    text = await desk.sessions.begin("admin", ADA)
    desk.clock.advance(LIFE_S - 1)
    assert await desk.sessions.find("admin", text) == ADA
    assert await desk.sessions.find("viewer", text) is None
    desk.clock.advance(1)
    assert await desk.sessions.find("admin", text) is None


async def test_those_that_are_over_go_with_the_next_log_in(desk: Desk) -> None:
    for _ in range(20):
        await desk.sessions.begin("viewer", ADA)
    desk.clock.advance(LIFE_S)
    await desk.sessions.begin("admin", ADA)
    assert desk.rows() == 2, "the key and the last session"


async def test_there_are_only_so_many_of_a_role(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    admin = await desk.sessions.begin("admin", ADA)
    texts: list[str] = []
    for _ in range(5):
        desk.clock.advance(1)
        texts.append(await desk.sessions.begin("viewer", ADA))
    found = [await desk.sessions.find("viewer", text) is not None for text in texts]
    assert found == [False, False, True, True, True]
    assert await desk.sessions.find("admin", admin) == ADA


async def test_a_row_that_cannot_be_read_is_no_session(desk: Desk) -> None:
    text = await desk.sessions.begin("admin", ADA)
    [place] = [place for place in desk.store._tables.settings if place[0] != "web"]
    for value in (b"", b"\xff", b"[]", b'{"name": 5}'):
        await desk.store.settings.put(*place, value)
        assert await desk.sessions.find("admin", text) is None


async def test_the_file_holds_no_text_that_opens_anything(tmp_path: Path) -> None:
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
