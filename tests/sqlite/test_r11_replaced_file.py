"""A database file that was removed or replaced while processes use it."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge, StoreReplaced
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import Unavailable
from forge_jobs.core.job import NewJob
from forge_jobs.store.jobs import Exchange
from forge_jobs.store.processes import ProcessStats
from tests.sqlite.child import new_process

A_JOB = NewJob(kind="k", queue="q")
HOW = ("removed", "moved", "replaced")


def take_away(path: Path, how: str) -> None:
    if how == "removed":
        path.unlink()
    elif how == "moved":
        path.rename(path.with_name("moved.db"))
    else:
        backup = path.with_name("backup.db")
        shutil.copy(path, backup)
        backup.replace(path)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("turns", [0, 1, 7, 15, 16, 17])
def test_r11_no_enqueue_is_accepted_by_a_replaced_file(path: Path, how: str, turns: int) -> None:
    store = SqliteStore(path)
    for _ in range(turns + 1):
        store.enqueue_sync([A_JOB])
    take_away(path, how)
    for _ in range(33):
        with pytest.raises(StoreReplaced, match="removed or replaced"):
            store.enqueue_sync([A_JOB])


@pytest.mark.parametrize("how", HOW)
def test_r11_without_sync_a_replaced_file_is_noticed_within_milliseconds(
    path: Path, how: str
) -> None:
    store = SqliteStore(path, synchronous="normal")
    store.enqueue_sync([A_JOB])
    take_away(path, how)
    time.sleep(0.01)
    for _ in range(33):
        with pytest.raises(StoreReplaced):
            store.enqueue_sync([A_JOB])


@pytest.mark.parametrize("how", HOW)
async def test_r11_no_other_write_is_accepted_by_a_replaced_file(path: Path, how: str) -> None:
    store = SqliteStore(path)
    await store.open()
    key = await store.processes.register(new_process("a"))
    await store.jobs.exchange(Exchange(owner=key, number=1))
    take_away(path, how)
    for number in range(2, 20):
        with pytest.raises(StoreReplaced):
            await store.jobs.exchange(Exchange(owner=key, number=number))
        with pytest.raises(StoreReplaced):
            store.enqueue_sync([A_JOB, A_JOB])
        with pytest.raises(StoreReplaced):
            await store.jobs.enqueue([A_JOB])
    with pytest.raises(StoreReplaced):
        await store.processes.heartbeat(key, ProcessStats())
    await store.close()


def test_r11_a_file_that_came_back_is_used_again(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(Unavailable):
        store.enqueue_sync([A_JOB])
    away.rename(path)
    store.enqueue_sync([A_JOB])
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM forge_jobs").fetchone() == (2,)


APP = """
import time
from forge_jobs import Forge
forge = Forge("sqlite:///jobs.db")

@forge.task(queue="mail")
def write(note: str) -> None:
    open(note, "w").write("ran")

@forge.task(queue="mail")
def sleep(note: str) -> None:
    open(note, "w").write("ran")
    time.sleep(600)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (tmp_path / "app.py").write_text(APP)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "forge_jobs", "worker", "app:forge"),
                *("--queues", "mail", "--lease", "3s", "--grace", "2s"),
            ],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(what: Callable[[], object], log: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_r11_a_worker_over_a_replaced_file_is_started_anew(
    tmp_path: Path, worker: "subprocess.Popen[bytes]", how: str, busy: bool
) -> None:
    log = tmp_path / "log"
    until(lambda: "is up" in log.read_text(), log)
    if busy:
        # Every slot runs a job: the worker has nothing to write and no reason to read.
        forge = Forge(f"sqlite:///{tmp_path}/jobs.db")
        notes = [tmp_path / f"busy{number}" for number in range(10)]
        for note in notes:
            forge.enqueue("sleep", {"note": str(note)}, queue="mail")
        until(lambda: all(note.exists() for note in notes), log)
        forge.close()
    take_away(tmp_path / "jobs.db", how)
    until(lambda: log.read_text().count("is up") == 2, log)
    assert "was removed or replaced" in log.read_text()
    assert "this worker exits" in log.read_text()
    if how == "removed" or not busy:
        # The copy has the ten sleeping jobs, and they run again.
        with Forge(f"sqlite:///{tmp_path}/jobs.db") as forge:
            note = tmp_path / "note"
            forge.enqueue("write", {"note": str(note)}, queue="mail")
            until(note.exists, log)
    worker.terminate()
    worker.wait(60)
