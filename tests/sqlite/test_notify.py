"""Notifications between processes: by socket, and by polling when none was sent."""

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
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.kit.clock import SYSTEM_CLOCK
from tests.sqlite.conftest import Start, read_line

NEVER = 3600.0


async def is_notified(event: asyncio.Event) -> bool:
    try:
        await asyncio.wait_for(event.wait(), 60)
    except TimeoutError:
        return False
    event.clear()
    return True


@pytest.mark.processes
async def test_another_process_sends_a_notification(
    store: SqliteStore, path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.notify._POLL_S", NEVER)
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    child = start("enqueue", path, "q")
    assert read_line(child) == "ready"
    assert child.stdin is not None
    for _ in range(3):
        child.stdin.write("\n")
        child.stdin.flush()
        assert read_line(child) == "sent"
        assert await is_notified(notified)
    await subscription.close()
    await subscription.close()
    assert os.listdir(f"{path}-forge/notify") == []


async def test_a_listener_gets_only_its_own_queues(store: SqliteStore, path: Path) -> None:
    mine, theirs = asyncio.Event(), asyncio.Event()
    one = await store.subscribe(["mine"], mine.set)
    two = await store.subscribe(["theirs"], theirs.set)
    store.enqueue_sync([NewJob(kind="k", queue="mine")])
    assert await is_notified(mine)
    assert not theirs.is_set()
    await store.queues.ensure("any", slots=1)
    assert await is_notified(mine)
    assert await is_notified(theirs)
    await one.close()
    await two.close()


async def test_a_writer_without_this_library_is_detected_by_polling(
    store: SqliteStore, path: Path
) -> None:
    (stored,) = store.enqueue_sync([NewJob(kind="k", queue="q", delay_s=1000)])
    notified = asyncio.Event()
    subscription = await store.subscribe(["q"], notified.set)
    await asyncio.sleep(0.3)
    notified.clear()
    other = sqlite3.connect(path)
    other.execute(
        "UPDATE forge_jobs SET status = 'pending', due_at = NULL, claimable = 1 WHERE id = ?",
        (stored.key,),
    )
    other.commit()
    other.close()
    assert await is_notified(notified)
    await subscription.close()


async def test_unrelated_commits_notify_no_listener(store: SqliteStore, path: Path) -> None:
    notifications = 0

    def notify() -> None:
        nonlocal notifications
        notifications += 1

    subscription = await store.subscribe(["q"], notify)
    await asyncio.sleep(0.3)
    for _ in range(3):
        (other,) = store.enqueue_sync([NewJob(kind="k", queue="elsewhere")])
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(other.id,)), reason="no", limit=1)
        await asyncio.sleep(0.15)
    assert notifications == 0
    await subscription.close()


def deep(tmp_path: Path) -> Path:
    database = tmp_path
    while len(os.fsencode(database)) < 150:
        database = database / "a-rather-long-name-of-a-directory"
        database.mkdir()
    return database / "jobs.db"


@pytest.mark.parametrize("short_way", [True, False])
async def test_a_path_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_way: bool
) -> None:
    if not short_way:
        monkeypatch.setattr("forge_jobs.backends.sqlite.os.notify_socket._PROC_FD", "/nowhere")
    database = DatabaseFile.at(deep(tmp_path))
    database.prepare()
    socket = NotifySocket(database, "long")
    sender = NotifySender(database, SYSTEM_CLOCK)
    sender.notify(Message(frozenset({"q"})), exclude=frozenset())
    assert list(socket.messages()) == [Message(frozenset({"q"}))]
    socket.close()
    sender.close()
    assert os.listdir(database.part("notify")) == []


def test_sockets_of_dead_processes_are_removed(tmp_path: Path) -> None:
    database = DatabaseFile.at(tmp_path / "jobs.db")
    database.prepare()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(database.part("notify", "dead.sock"))
    dead.close()
    living = NotifySocket(database, "living")
    sender = NotifySender(database, SYSTEM_CLOCK)
    sender.notify(Message(frozenset(), control_changed=True), exclude=frozenset())
    assert os.listdir(database.part("notify")) == ["living.sock"]
    assert [message.control_changed for message in living.messages()] == [True]
    living.close()
    sender.close()


def test_a_full_socket_blocks_no_sender(tmp_path: Path) -> None:
    database = DatabaseFile.at(tmp_path / "jobs.db")
    database.prepare()
    socket = NotifySocket(database, "deaf")
    sender = NotifySender(database, SYSTEM_CLOCK)
    for _ in range(5_000):
        sender.notify(Message(frozenset({"q"})), exclude=frozenset())
    assert list(socket.messages())
    socket.close()
    sender.close()


@pytest.mark.parametrize(
    "message",
    [
        Message(frozenset({"a", "b"})),
        Message(frozenset({"a"}), uncommitted=True),
        Message(frozenset(), control_changed=True),
    ],
)
def test_messages_are_decoded_as_they_were_encoded(message: Message) -> None:
    assert Message.decode(message.encode()) == message


def test_too_many_queues_notify_every_listener() -> None:
    many = Message(frozenset(f"a-queue-with-a-long-name-{number}" for number in range(500)))
    assert Message.decode(many.encode()).concerns(frozenset({"other"}))
