"""R1: a fork never costs a job or the file, however and whenever a program forks.

Each run is a separate program (forking_program.py) on a separate file, while a third process opens,
writes and closes all the time. Afterwards no child hung, the file is sound, and every job that was
acknowledged to a process is in it.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.liveness_file import probe
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import ForgeError, Refused
from forge_jobs.core.job import NewJob
from forge_jobs.kit.clock import SystemClock
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.store import Subscription

PROGRAM = Path(__file__).parent / "forking_program.py"
ORDERS = ("first", "last")
# How many processes record that they ended.
ENDS = {"daemon": 1, "preload": 3, "multiprocessing": 3, "handler": 4, "busy": 6, "storm": 6}
LIMIT_S = 60.0


def start(way: str, order: str, file: Path, notes: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), way, order, str(file), str(notes)],
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> str:
    try:
        return process.communicate(timeout=LIMIT_S)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def round_of(way: str, order: str, directory: Path) -> None:
    notes = directory / "notes"
    notes.mkdir(parents=True)
    file = directory / "jobs.db"
    third = start("stranger", "-", file, notes)
    output = ended(start(way, order, file, notes))
    until = time.monotonic() + LIMIT_S
    while len(list(notes.glob("done-*"))) < ENDS[way] and time.monotonic() < until:
        time.sleep(0.01)
    (notes / "stop").touch()
    output += ended(third)
    assert output == ""
    assert len(list(notes.glob("done-*"))) == ENDS[way]
    assert (notes / "stranger done").exists()
    check(file, [line for name in notes.glob("ids-*") for line in name.read_text().split()])


def check(file: Path, accepted: Sequence[str]) -> None:
    database = sqlite3.connect(file)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    assert len(accepted) > 20

    async def missing() -> list[str]:
        store = SqliteStore(file)
        await store.open()
        found = await store.jobs.peek(accepted)
        await store.close()
        return [job_id for job_id, job in zip(accepted, found, strict=True) if job is None]

    assert asyncio.run(missing()) == []


@pytest.mark.processes
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("way", ["daemon", "preload", "multiprocessing", "handler", "busy"])
def test_r1_a_fork_costs_no_job(tmp_path: Path, way: str, order: str) -> None:
    for number in range(2):
        round_of(way, order, tmp_path / str(number))


@pytest.mark.processes
@pytest.mark.parametrize("order", ORDERS)
def test_r1_a_fork_while_others_open_list_and_checkpoint(tmp_path: Path, order: str) -> None:
    round_of("storm", order, tmp_path)


# ---------------------------------------------------------------- one fork in detail

A_JOB = NewJob(kind="k", queue="q")


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked child; its exit code."""
    with warnings.catch_warnings():
        # Forking with threads is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(int(LIMIT_S))
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def open_here(directory: Path) -> list[str]:
    """What this process has open of databases in a directory: files, locks, sockets."""
    me = psutil.Process()
    # The long path of a socket is shortened.
    sockets = [path.name for path in directory.glob("*-forge/notify/*")]
    names = [
        os.readlink(f"/proc/self/fd/{number}")
        for number in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{number}")
    ]
    names += [str(socket.laddr) for socket in me.net_connections(kind="unix")]
    return [name for name in names if str(directory) in name or os.path.basename(name) in sockets]


async def used(file: Path) -> tuple[SqliteStore, Subscription]:
    """A store with everything open that it can have open."""
    store = SqliteStore(file)
    await store.open()
    await store.jobs.enqueue([A_JOB])
    await store.metrics.counts()
    listening = await store.subscribe(["q"], lambda: None)
    await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=os.getpid(), hostname="here")
    )
    return store, listening


@pytest.mark.processes
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="shows descriptors on Linux only")
async def test_r1_nothing_of_a_store_is_open_in_a_child(path: Path) -> None:
    stores = [await used(path), await used(path), await used(path.with_name("other.db"))]
    assert len(open_here(path.parent)) > 20

    def child() -> None:
        assert open_here(path.parent) == []
        for store, _ in stores:
            store.enqueue_sync([A_JOB])

    assert in_child(child) == 0
    for store, listening in stores:
        store.enqueue_sync([A_JOB])
        assert sum(count.jobs for count in await store.metrics.counts()) in (3, 5, 6)
        await listening.close()
        await store.close()


@pytest.mark.processes
async def test_r1_subscriptions_and_calls_of_the_parent_go_on(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    notified = asyncio.Event()
    listening = await store.subscribe(["q"], notified.set)
    calls = [asyncio.ensure_future(store.jobs.enqueue([A_JOB])) for _ in range(20)]
    await asyncio.sleep(0)
    assert in_child(lambda: None) == 0
    assert len(await asyncio.gather(*calls)) == 20
    await asyncio.sleep(0.3)
    notified.clear()
    # A plain connection sends no notification.
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE forge_meta SET control_version = control_version + 1")
    await asyncio.wait_for(notified.wait(), 10)
    await listening.close()
    await store.close()


@pytest.mark.processes
def test_r1_a_dead_worker_is_detected_although_its_child_lives(path: Path) -> None:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        asyncio.run(used(path))
        grandchild = os.fork()
        if grandchild == 0:
            os.write(writing, f"{os.getpid()}\n".encode())
            signal.alarm(int(LIMIT_S))
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    grandchild = int(os.read(reading, 100))
    try:
        assert probe(DatabaseFile.at(path), "h") is None
    finally:
        os.kill(grandchild, signal.SIGKILL)
        os.close(reading)
        os.close(writing)


@pytest.mark.processes
@pytest.mark.parametrize("returns", [False, True])
def test_r1_a_fork_in_the_middle_of_a_call_of_its_own_thread(path: Path, returns: bool) -> None:
    """A signal handler forks there. Nothing waits for itself, and the child may not use the file,
    also not if it returns to the call."""
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    pids: list[int] = []

    class Interrupting(SystemClock):
        def now(self) -> int:
            if not pids:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    pids.append(os.fork())
                if pids == [0] and not returns:
                    os._exit(refused(SqliteStore(path)))
            return super().now()

    # Asked for the time with the lock held and a transaction open.
    store._writer._session._clock = Interrupting()  # type: ignore[reportPrivateUsage]
    try:
        store.enqueue_sync([A_JOB, A_JOB])
    except ForgeError:
        assert pids == [0]
    if pids == [0]:
        os._exit(refused(store))
    _, status = os.waitpid(pids[0], 0)
    assert status == 0
    asyncio.run(store.close())
    check_count(path, 3)


def refused(store: SqliteStore) -> int:
    """0 if the store may not be used here."""
    signal.alarm(int(LIMIT_S))
    try:
        store.enqueue_sync([A_JOB, A_JOB])
    except Refused as error:
        return 0 if "forked" in str(error) else 1
    return 2


@pytest.mark.processes
def test_r1_a_fork_waits_for_the_write_of_another_thread(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    inside, go_on = threading.Event(), threading.Event()

    class Slow(SystemClock):
        def now(self) -> int:
            inside.set()
            go_on.wait(LIMIT_S)
            return super().now()

    store._writer._session._clock = Slow()  # type: ignore[reportPrivateUsage]
    operation = store._writer.call_here  # type: ignore[reportPrivateUsage]
    thread = threading.Thread(target=operation, args=(lambda tx: None,))
    thread.start()
    assert inside.wait(LIMIT_S)
    threading.Timer(0.3, go_on.set).start()
    assert in_child(lambda: store.enqueue_sync([A_JOB])) == 0
    thread.join()
    asyncio.run(store.close())
    check_count(path, 2)


@pytest.mark.processes
def test_r1_children_of_children(path: Path) -> None:
    store = SqliteStore(path)

    def generation(left: int) -> None:
        store.enqueue_sync([A_JOB])
        if left:
            assert in_child(lambda: generation(left - 1)) == 0
            store.enqueue_sync([A_JOB])
        asyncio.run(store.close())

    generation(3)
    check_count(path, 7)


@pytest.mark.processes
def test_r1_programs_are_started_as_before(path: Path) -> None:
    """Without a fork of Python's, and with one (preexec_fn)."""
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert subprocess.run(["true"], check=False).returncode == 0
        store.enqueue_sync([A_JOB])
        assert subprocess.run(["true"], check=False, preexec_fn=os.getpid).returncode == 0
        store.enqueue_sync([A_JOB])
    asyncio.run(store.close())
    check_count(path, 3)


@pytest.mark.processes
def test_r1_a_foreign_connection_across_a_fork_is_named(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT 1 FROM forge_meta").fetchall()

        def child() -> None:
            assert "close it before forking" in caplog.text

        assert in_child(child) == 0
    asyncio.run(store.close())


def check_count(file: Path, jobs: int) -> None:
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM forge_jobs").fetchone() == (jobs,)
