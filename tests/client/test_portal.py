"""The way to the store: opened once, from everywhere, after forks, never after the end."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from forge_jobs import Closed, Forge, Refused, Unavailable
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.client.store_access import StoreAccess


class SlowStore(MemoryStore):
    """Counts how often it is opened, and fails the given number of times."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.opened: list[bool] = []
        self.closed = 0
        self.failures = failures

    async def open(self, *, migrate: bool = True) -> None:
        self.opened.append(migrate)
        await asyncio.sleep(0.05)
        if self.failures:
            self.failures -= 1
            raise Unavailable("not now")

    async def close(self) -> None:
        self.closed += 1


def access_to(store: SlowStore, *, migrate: bool = True) -> StoreAccess:
    return StoreAccess(lambda: store, migrate=lambda: migrate)


def test_nothing_is_opened_before_the_first_use() -> None:
    made: list[str] = []

    def make() -> MemoryStore:
        made.append("store")
        return MemoryStore()

    before = set(threading.enumerate())
    access = StoreAccess(make, migrate=lambda: True)
    assert made == []
    assert set(threading.enumerate()) <= before
    access.ready()
    assert made == ["store"]
    access.close()


def test_many_threads_open_it_once() -> None:
    store = SlowStore()
    access = access_to(store)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(access.ready())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.opened == [True]
    assert found == [store] * 16
    access.close()


async def test_coroutines_and_threads_open_it_once() -> None:
    store = SlowStore()
    access = access_to(store, migrate=False)
    found = await asyncio.gather(
        *(access.aready() for _ in range(8)), *(asyncio.to_thread(access.ready) for _ in range(4))
    )
    assert store.opened == [False]
    assert set(found) == {store}
    await access.aclose()
    assert store.closed == 1


async def test_a_caller_who_gives_up_does_not_disturb_the_others() -> None:
    store = SlowStore()
    access = access_to(store)
    impatient = asyncio.create_task(access.aready())
    patient = asyncio.create_task(access.aready())
    await asyncio.sleep(0.01)
    impatient.cancel()
    assert await patient is store
    assert store.opened == [True]
    await access.aclose()


def test_a_failed_opening_is_tried_again_by_the_next_call() -> None:
    store = SlowStore(failures=2)
    access = access_to(store)
    for _ in range(2):
        with pytest.raises(Unavailable):
            access.ready()
    assert access.ready() is store
    access.close()
    assert (len(store.opened), store.closed) == (3, 1)


async def test_closing_while_somebody_waits_for_a_result() -> None:
    forge = Forge("memory://")

    @forge.task
    def job() -> None: ...

    handle = await job.aenqueue()
    waiting = asyncio.create_task(handle.aresult())
    await asyncio.sleep(0.05)
    await forge.aclose()
    with pytest.raises(Closed):
        await asyncio.wait_for(waiting, 60)


async def test_a_sync_call_on_the_io_thread_is_refused(forge: Forge) -> None:
    @forge.task
    def job() -> None: ...

    access = forge.client.access
    await access.aready()

    async def over_there() -> None:
        job.enqueue().refresh()

    with pytest.raises(Refused, match="use the async form"):
        await asyncio.wrap_future(access.spawn(over_there))


def run_script(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_enqueue_at_exit_and_later_neither_hangs_nor_vanishes() -> None:
    done = run_script(
        """
        import atexit, os, sys
        from forge_jobs import Closed, Forge

        forge = Forge("memory://")

        @forge.task
        def job() -> None: ...

        class Last:
            enqueue, closed, write, ending = job.enqueue, Closed, os.write, sys.is_finalizing

            def __del__(self):
                try:
                    Last.enqueue()
                    Last.write(1, b"stored")
                except Last.closed:
                    Last.write(1, b"closed" if Last.ending() else b"closed too early")

        def at_exit():
            try:
                print("at exit", job.enqueue().refresh().status, flush=True)
            except Closed:
                print("at exit closed", flush=True)

        job.enqueue()
        atexit.register(at_exit)
        keep = Last()
        keep.alive = keep
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("at exit pending", "at exit closed"))
    assert done.stdout.endswith("\nclosed")


def test_first_use_at_exit_does_not_hang() -> None:
    done = run_script(
        """
        import atexit
        from forge_jobs import Closed, Forge

        forge = Forge("memory://")

        @forge.task
        def job() -> None: ...

        def at_exit():
            for _ in range(2):
                try:
                    print(job.enqueue().status)
                except Closed as error:
                    print("closed:", error)

        atexit.register(at_exit)
        """
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(line == "pending" or "shutting down" in line for line in lines)


def test_a_forked_child_opens_its_own_way() -> None:
    done = run_script(
        """
        import os, sys, warnings
        from forge_jobs import Forge

        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads is the point here
        forge = Forge("memory://")

        @forge.task
        def job(n: int) -> None: ...

        mine = job.enqueue(1)
        assert mine.refresh().attempts == 0
        parent_io = forge.client.access.io
        pid = os.fork()
        if pid == 0:
            assert forge.client.access.io is not parent_io
            again = job.enqueue(2)
            assert again.refresh().payload == {"n": 2}
            assert forge.job(mine.id).refresh().payload == {"n": 1}
            try:
                again.result(timeout=0.2)
            except Exception as error:
                print(type(error).__name__)
            sys.stdout.flush()
            forge.close()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        job.enqueue(3).refresh()
        forge.close()
        print("parent fine")
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["ResultTimeout", "parent fine"]


def test_a_fork_while_another_thread_holds_our_locks() -> None:
    done = run_script(
        """
        import os, threading, warnings
        from forge_jobs import Forge

        warnings.simplefilter("ignore", DeprecationWarning)
        forge = Forge("memory://")

        @forge.task
        def job() -> None: ...

        job.enqueue().refresh()
        access, poller = forge.client.access, forge.client.poller
        held, go_on = threading.Event(), threading.Event()

        def hold():
            with access._lock, poller._lock, access.io._lock:
                held.set()
                go_on.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            handle = job.enqueue()
            handle.refresh()
            handle.cancel()
            forge.close()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        go_on.set()
        thread.join()
        forge.close()
        print(status)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"
