"""Waking other processes: by doorbell, and by looking when no bell was rung."""

import asyncio
import os
import socket
import sqlite3
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.notify_socket import Message, NotifySender, NotifySocket
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Selection
from forge_jobs.kit.clock import SYSTEM_CLOCK

from .conftest import Start, said

NEVER = 3600.0


async def heard(event: asyncio.Event) -> bool:
    try:
        await asyncio.wait_for(event.wait(), 60)
    except TimeoutError:
        return False
    event.clear()
    return True


@pytest.mark.processes
async def test_another_process_rings_the_bell(
    store: SqliteStore, path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.notify._LOOK_S", NEVER)
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    child = start("enqueue", path, "q")
    assert said(child) == "ready"
    assert child.stdin is not None
    for _ in range(3):
        child.stdin.write("\n")
        child.stdin.flush()
        assert said(child) == "sent"
        assert await heard(notified)
    await subscription.close()
    await subscription.close()
    assert os.listdir(f"{path}-forge/bell") == []


async def test_only_its_own_queues_ring(store: SqliteStore, path: Path) -> None:
    mine, theirs = asyncio.Event(), asyncio.Event()
    one = await store.subscribe(["mine"], mine.set)
    two = await store.subscribe(["theirs"], theirs.set)
    store.enqueue_sync([NewJob(kind="k", queue="mine")])
    assert await heard(mine)
    assert not theirs.is_set()
    await store.queues.ensure("any", slots=1)
    assert await heard(mine)
    assert await heard(theirs)
    await one.close()
    await two.close()


async def test_a_writer_without_this_library_is_noticed(store: SqliteStore, path: Path) -> None:
    (stored,) = store.enqueue_sync([NewJob(kind="k", queue="q", delay_s=1000)])
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    await asyncio.sleep(0.3)
    notified.clear()
    other = sqlite3.connect(path)
    other.execute(
        "UPDATE forge_jobs SET status = 'pending', due_at = NULL, line = 1 WHERE id = ?",
        (stored.key,),
    )
    other.commit()
    other.close()
    assert await heard(notified)
    await subscription.close()


async def test_commits_that_concern_nobody_wake_nobody(store: SqliteStore, path: Path) -> None:
    rings = 0

    def notify() -> None:
        nonlocal rings
        rings += 1

    subscription = await store.subscribe(["q"], notify)
    await asyncio.sleep(0.3)
    for _ in range(3):
        (other,) = store.enqueue_sync([NewJob(kind="k", queue="elsewhere")])
        await store.jobs.cancel(Selection(ids=(other.id,)), reason="no", limit=1)
        await asyncio.sleep(0.15)
    assert rings == 0
    await subscription.close()


def deep(tmp_path: Path) -> Path:
    place = tmp_path
    while len(os.fsencode(place)) < 150:
        place = place / "a-rather-long-name-of-a-directory"
        place.mkdir()
    return place / "jobs.db"


@pytest.mark.parametrize("short_way", [True, False])
async def test_a_path_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_way: bool
) -> None:
    if not short_way:
        monkeypatch.setattr("forge_jobs.backends.sqlite.os.notify_socket._PROC", "/nowhere")
    place = DatabaseFile.at(deep(tmp_path))
    place.prepare()
    bell = NotifySocket(place, "long")
    ringer = NotifySender(place, SYSTEM_CLOCK)
    ringer.notify(Message(frozenset({"q"})), but=frozenset())
    assert list(bell.messages()) == [Message(frozenset({"q"}))]
    bell.close()
    ringer.close()
    assert os.listdir(place.part("bell")) == []


def test_bells_of_the_dead_are_taken_down(tmp_path: Path) -> None:
    place = DatabaseFile.at(tmp_path / "jobs.db")
    place.prepare()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(place.part("bell", "dead.sock"))
    dead.close()
    living = NotifySocket(place, "living")
    ringer = NotifySender(place, SYSTEM_CLOCK)
    ringer.notify(Message(frozenset(), operated=True), but=frozenset())
    assert os.listdir(place.part("bell")) == ["living.sock"]
    assert [message.operated for message in living.messages()] == [True]
    living.close()
    ringer.close()


def test_a_full_bell_blocks_nobody(tmp_path: Path) -> None:
    place = DatabaseFile.at(tmp_path / "jobs.db")
    place.prepare()
    bell = NotifySocket(place, "deaf")
    ringer = NotifySender(place, SYSTEM_CLOCK)
    for _ in range(5_000):
        ringer.notify(Message(frozenset({"q"})), but=frozenset())
    assert list(bell.messages())
    bell.close()
    ringer.close()


@pytest.mark.parametrize(
    "message",
    [
        Message(frozenset({"a", "b"})),
        Message(frozenset({"a"}), uncommitted=True),
        Message(frozenset(), operated=True),
    ],
)
def test_messages_survive_the_wire(message: Message) -> None:
    assert Message.decode(message.encode()) == message


def test_too_many_queues_concern_everybody() -> None:
    many = Message(frozenset(f"a-queue-with-a-long-name-{number}" for number in range(500)))
    assert Message.decode(many.encode()).concerns(frozenset({"other"}))
