"""R12 a and b: what other programs do to the files of a database in use."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import ProcessStats
from tests.sqlite.child import new_process

A_JOB = NewJob(kind="k", queue="q")


def locks_on(path: Path) -> int:
    """How many locks this process holds on a file."""
    found = 0
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "POSIX" and fields[4] == str(os.getpid()):
            found += int(fields[5].rpartition(":")[2]) == path.stat().st_ino
    return found


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="needs Linux's table of locks")
async def test_r12a_a_copy_in_this_process_drops_its_locks_and_a_backup_does_not(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    """It cannot be mended: POSIX drops all locks of a process on a file when the process closes
    any descriptor of it. docs/operations.md says what to do instead, and that does not."""
    store.enqueue_sync([A_JOB])
    held = locks_on(path)
    assert held > 0
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(tmp_path / "b")) as copy:
        source.backup(copy)
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", (str(tmp_path / "c"),))
    subprocess.run(["cp", path, tmp_path / "d"], check=True)
    assert locks_on(path) >= held
    store.enqueue_sync([A_JOB])
    shutil.copy(path, tmp_path / "e")
    assert locks_on(path) == 0


async def test_r12b_a_removed_side_folder_takes_no_job_from_a_living_worker(path: Path) -> None:
    owner, other = SqliteStore(path), SqliteStore(path)
    await owner.open()
    await other.open()
    key = await owner.processes.register(new_process("a", lease_s=1.0))
    owner.enqueue_sync([A_JOB])
    claimed = await owner.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 1, 0)]))
    assert len(claimed.claims) == 1
    assert [process.host_id for process in await other.processes.all()] == ["a"]
    shutil.rmtree(f"{path}-forge")
    assert (await other.jobs.reap(crash_note="crashed", limit=10)).pending == 0
    assert (await owner.processes.heartbeat(key, ProcessStats())).alive
    time.sleep(1.1)
    assert (await owner.processes.heartbeat(key, ProcessStats())).alive
    assert (await other.jobs.reap(crash_note="crashed", limit=10)).pending == 0
    # Its death is still detected, at once while the folder is there.
    await owner.close()
    assert (await other.jobs.reap(crash_note="crashed", limit=10)).pending == 1
    await other.close()


async def test_r12b_a_dead_process_without_a_side_folder_is_reaped_after_its_lease(
    path: Path,
) -> None:
    owner, other = SqliteStore(path), SqliteStore(path)
    await owner.open()
    await other.open()
    key = await owner.processes.register(new_process("a", lease_s=1.0))
    owner.enqueue_sync([A_JOB])
    await owner.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 1, 0)]))
    await other.processes.all()
    await owner.close()
    shutil.rmtree(f"{path}-forge")
    assert (await other.jobs.reap(crash_note="crashed", limit=10)).pending == 0
    time.sleep(1.1)
    assert (await other.jobs.reap(crash_note="crashed", limit=10)).pending == 1
    await other.close()


APP = """
import time
from forge_jobs import Forge
forge = Forge("sqlite:///jobs.db")

@forge.task(queue="mail")
def slow(note: str, seconds: float) -> None:
    with open(note, "a") as file:
        file.write("started\\n")
    time.sleep(seconds)
"""


def until(what: Callable[[], object], log: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_r12b_workers_run_no_job_twice_without_their_side_folder(tmp_path: Path) -> None:
    """Slow: the job runs for longer than the lease, with a second worker that could reap it."""
    (tmp_path / "app.py").write_text(APP)
    log, note = tmp_path / "log", tmp_path / "note"
    with log.open("wb") as stream:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "forge_jobs", "worker", "app:forge"),
                *("--queues", "mail", "--lease", "2s", "--processes", "2"),
            ],
            cwd=tmp_path,
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        until(lambda: log.read_text().count("is up") == 2, log)
        with Forge(f"sqlite:///{tmp_path}/jobs.db") as forge:
            options = {"note": str(note), "seconds": 5.0}
            job = forge.enqueue("slow", options, queue="mail")
            until(note.exists, log)
            shutil.rmtree(tmp_path / "jobs.db-forge")
            until(lambda: job.refresh().status == "done", log)
            # A queue still works, and so does the next job.
            options = {"note": str(tmp_path / "again"), "seconds": 0.0}
            forge.enqueue("slow", options, queue="mail")
            until((tmp_path / "again").exists, log)
        assert note.read_text().count("started") == 1
        assert "was removed while it was in use; made again" in log.read_text()
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
