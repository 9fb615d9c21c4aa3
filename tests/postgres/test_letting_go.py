"""However a program ends its event loops and its store, no connection is left open."""

import subprocess
import sys
import textwrap

import pytest

from .server import PrivateServer

BEGIN = """
import asyncio, gc, os, sys, threading
from forge_jobs import Forge
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob

url = sys.argv[1]

async def enqueue(store):
    await store.jobs.enqueue([NewJob(kind="work", queue="q")])

async def opened():
    store = PostgresStore(url)
    await store.open()
    await enqueue(store)
    return store

async def listening(store):
    await store.subscribe(["q"], lambda: None)
    while store._listener.state != "listening":
        await asyncio.sleep(0.01)
"""

WAYS = {
    "a script that never closes": """
        Forge(url).enqueue("work", {})
        """,
    "coroutines that never close": """
        async def main():
            await Forge(url).aenqueue("work", {})
        asyncio.run(main())
        """,
    "a loop that ends before the store": """
        store = asyncio.run(opened())
        asyncio.run(enqueue(store))
        asyncio.run(store.close())
        """,
    "a loop that does not run when the store is closed": """
        forge = Forge(url)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(forge.aenqueue("work", {}))
        forge.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """,
    "a loop that does not run when its connection is evicted": """
        forge = Forge(url)
        loops = [asyncio.new_event_loop() for _ in range(4)]
        for loop in loops:
            loop.run_until_complete(forge.aenqueue("work", {}))
        forge.close()
        for loop in loops:
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
        """,
    "a loop that is closed with open connections": """
        loop = asyncio.new_event_loop()
        store = loop.run_until_complete(opened())
        loop.close()
        del loop
        asyncio.run(enqueue(store))
        asyncio.run(store.close())
        """,
    "a loop that is closed while the listener runs": """
        loop = asyncio.new_event_loop()
        store = loop.run_until_complete(opened())
        loop.run_until_complete(listening(store))
        # asyncio would warn about the task; this test is about the connection.
        store._listener._task._log_destroy_pending = False
        loop.close()
        async def again():
            await listening(store)
            await store.close()
        asyncio.run(again())
        """,
    "a listener on another thread": """
        store = asyncio.run(opened())
        over = threading.Event()
        ready = threading.Event()
        async def listen():
            await listening(store)
            ready.set()
            await asyncio.to_thread(over.wait)
        thread = threading.Thread(target=lambda: asyncio.run(listen()))
        thread.start()
        ready.wait()
        asyncio.run(store.close())
        over.set()
        thread.join()
        """,
    "a forked child of a process that listens": """
        async def main():
            store = await opened()
            await listening(store)
            child = os.fork()
            if child == 0:
                store.after_fork()
                gc.collect()
                sys.stderr.flush()
                os._exit(0)
            os.waitpid(child, 0)
            before = store._listener._driver
            notified = asyncio.Event()
            await store.subscribe(["q"], notified.set)
            other = await opened()
            await asyncio.wait_for(notified.wait(), 60)
            assert store._listener._driver is before, "the child broke the parent's connection"
            await other.close()
            await store.close()
        asyncio.run(main())
        """,
}


@pytest.mark.processes
@pytest.mark.parametrize("way", WAYS)
def test_no_connection_is_left(way: str, url: str, schema: str, postgres: PrivateServer) -> None:
    script = BEGIN + textwrap.dedent(WAYS[way]) + "gc.collect()\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert int(postgres.sql(f"SELECT count(*) FROM {schema}.jobs")) > 0
