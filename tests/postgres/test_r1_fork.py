"""R1 on Postgres: parent and child of a fork each have their own connections and do not disturb
each other; every job that was acknowledged to a process is in the database."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from .server import PrivateServer

BEGIN = """
import asyncio, os, signal, sys, threading, time, warnings
from forge_jobs import Forge

# Forking with threads is the point here.
warnings.simplefilter("ignore", DeprecationWarning)
url = sys.argv[1]
forge = Forge(url)

@forge.task
def work(n: int) -> None: ...

def child_of(life):
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        code = 1
        try:
            life()
            code = 0
        finally:
            os._exit(code)
    return pid

def ends_well(*pids):
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
"""


def start(script: str, url: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(script: str, url: str) -> list[str]:
    """The output of a program that exited without an error and without warnings."""
    process = start(script, url)
    try:
        said, complained = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert (process.returncode, complained) == (0, ""), complained
    return said.split()


@pytest.mark.processes
@pytest.mark.parametrize("order", ["first", "last"])
def test_r1_forks_with_busy_threads(
    order: str, url: str, schema: str, postgres: PrivateServer
) -> None:
    ids = ran(
        f"""
        order = {order!r}
        stop = threading.Event()
        def say(job):
            os.write(1, (job.id + "\\n").encode())
        def busy():
            while not stop.is_set():
                say(work.enqueue(1))
        async def abusy():
            while not stop.is_set():
                say(await work.aenqueue(1))
        reading, writing = os.pipe()
        def life():
            for n in range(10):
                say(work.enqueue(n))
            if order == "first":
                os.read(reading, 1)
            for n in range(10):
                say(work.enqueue(n))
            forge.close()
        say(work.enqueue(1))
        threads = [threading.Thread(target=busy) for _ in range(2)]
        threads.append(threading.Thread(target=lambda: asyncio.run(abusy())))
        for thread in threads:
            thread.start()
        pids = [child_of(life) for _ in range(4)]
        stop.set()
        for thread in threads:
            thread.join()
        if order == "first":
            forge.close()
            os.write(writing, b"....")
        ends_well(*pids)
        if order == "last":
            say(work.enqueue(1))
            forge.close()
        """,
        url,
    )
    assert len(ids) == len(set(ids)) > 80
    assert int(postgres.sql(f"SELECT count(*) FROM {schema}.jobs")) == len(ids)


@pytest.mark.processes
def test_r1_the_server_notices_the_end_of_a_parent_whose_child_lives(
    url: str, postgres: PrivateServer
) -> None:
    parent = start(
        """
        async def main():
            async with forge.worker(queues=["default"]):
                await (await work.aenqueue(1)).aresult(timeout=30)
                store = await forge.client.access.aready()
                while store._listener.state != "listening":
                    await asyncio.sleep(0.01)
                pids = [await store._server.ask("SELECT pg_backend_pid()", writes=False)]
                pids.append([[store._listener._driver.get_server_pid()]])
                print(*[rows[0][0] for rows in pids], child_of(lambda: time.sleep(30)), flush=True)
                await asyncio.sleep(60)
        asyncio.run(main())
        """,
        url,
    )
    assert parent.stdout is not None
    child = ""
    try:
        *backends, child = parent.stdout.readline().split()
        listed = f"SELECT count(*) FROM pg_stat_activity WHERE pid IN ({','.join(backends)})"
        assert int(postgres.sql(listed)) == 2
        parent.kill()
        until = time.monotonic() + 10
        while int(postgres.sql(listed)) and time.monotonic() < until:
            time.sleep(0.05)
        assert int(postgres.sql(listed)) == 0
    finally:
        parent.kill()
        if child:
            os.kill(int(child), signal.SIGKILL)
        parent.communicate()


@pytest.mark.processes
def test_r1_a_fork_while_the_driver_is_imported(url: str) -> None:
    """The I/O thread imports asyncpg with the first connection."""
    said = ran(
        """
        began = threading.Event()

        class Slowly:
            def find_spec(self, name, path=None, target=None):
                if name == "asyncpg":
                    began.set()
                    time.sleep(0.5)

        sys.meta_path.insert(0, Slowly())
        thread = threading.Thread(target=work.enqueue, args=(1,))
        thread.start()
        began.wait()
        def life():
            # Threads of a child get the numbers of the parent's, and locks go by them.
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            os.write(1, work.enqueue(2).id.encode())
        pid = child_of(life)
        ends_well(pid)
        thread.join()
        forge.close()
        """,
        url,
    )
    assert len(said) == 1


@pytest.mark.processes
def test_r1_a_fork_in_handlers(url: str, schema: str, postgres: PrivateServer) -> None:
    ran(
        """
        pids = []

        @forge.task
        def plain() -> None:
            pids.append(child_of(lambda: work.enqueue(1)))

        @forge.task
        async def on_the_loop() -> None:
            pids.append(child_of(lambda: work.enqueue(2)))

        async def main():
            async with forge.worker(queues=["default"]):
                for _ in range(3):
                    for task in (plain, on_the_loop):
                        await (await task.aenqueue()).aresult(timeout=30)
                ends_well(*pids)
        asyncio.run(main())
        forge.close()
        """,
        url,
    )
    asked = f"SELECT (SELECT count(*) FROM {schema}.jobs) + (SELECT count(*) FROM {schema}.history)"
    assert int(postgres.sql(asked)) == 12
