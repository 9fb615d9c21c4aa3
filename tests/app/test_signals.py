"""U17: workers in the user's own process and SIGTERM, SIGINT."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from forge_jobs import Forge, Refused

SCRIPT = """
import asyncio, os, signal, sys
from forge_jobs import Forge

forge = Forge(os.environ["FORGE_URL"])

@forge.task(queue="q")
async def nap(seconds: float) -> str:
    print("started", flush=True)
    await asyncio.sleep(seconds)
    return "slept"

def mine(number, frame):
    print("mine", flush=True)

async def embedded():
    before = signal.getsignal(signal.SIGINT)
    async with forge.worker(queues=["q"], signals=True):
        print("ready", flush=True)
        await asyncio.sleep(3600)
    assert signal.getsignal(signal.SIGTERM) is mine
    assert signal.getsignal(signal.SIGINT) is before
    await asyncio.sleep(0)  # the task is not cancelled any more
    print("after", flush=True)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, mine)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1] == "embedded":
        asyncio.run(embedded())
    else:
        print("ready", flush=True)
        forge.run(["q"], shutdown_timeout="60s")
        assert signal.getsignal(signal.SIGTERM) is mine
        print("after", flush=True)
"""


class Script:
    """A worker in a process of its own, and what it prints."""

    def __init__(self, folder: Path, way: str, url: str) -> None:
        path = folder / "script.py"
        path.write_text(textwrap.dedent(SCRIPT))
        self.process = subprocess.Popen(
            [sys.executable, str(path), way],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "FORGE_URL": url},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def rest(self) -> str:
        return self.process.communicate(timeout=60)[0]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def forge(shared_url: str) -> Iterator[Forge]:
    made = Forge(shared_url)
    yield made
    made.close()


@pytest.fixture(params=["embedded", "run"])
def script(request: pytest.FixtureRequest, tmp_path: Path, shared_url: str) -> Iterator[Script]:
    made = Script(tmp_path, request.param, shared_url)
    assert made.line() == "ready"
    yield made
    made.end()


def registered(forge: Forge) -> list[str]:
    async def read(store: Any) -> list[str]:
        return [process.label for process in await store.processes.all()]

    return forge.client.access.run(read)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_u17_a_signal_drains_and_deregisters(
    forge: Forge, script: Script, number: signal.Signals
) -> None:
    job = forge.enqueue("nap", {"seconds": 1.0}, queue="q")
    assert script.line() == "started"
    script.process.send_signal(number)
    assert script.rest().split() == ["after"]
    assert script.process.returncode == 0
    assert job.refresh().status == "done", "the running job finished"
    assert registered(forge) == []


@pytest.mark.processes
def test_u17_a_second_signal_stops_at_once(forge: Forge, script: Script) -> None:
    job = forge.enqueue("nap", {"seconds": 3_600.0}, queue="q")
    assert script.line() == "started"
    script.process.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    assert script.process.poll() is None, "the first one waits for the job"
    script.process.send_signal(signal.SIGTERM)
    assert script.rest().split() == ["after"]
    assert job.refresh().status == "pending", "released, its attempt given back"
    assert job.attempts == 0
    assert registered(forge) == []


@pytest.mark.processes
def test_u17_an_idle_worker_ends_on_a_signal(forge: Forge, script: Script) -> None:
    for _ in range(600):
        if registered(forge):
            break
        time.sleep(0.05)
    script.process.send_signal(signal.SIGTERM)
    assert script.rest().split() == ["after"]
    assert registered(forge) == []
    assert not psutil.pid_exists(script.process.pid)


async def test_u17_a_block_that_ends_by_itself_restores_the_handlers() -> None:
    forge = Forge("memory://")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with forge.worker(queues=["q"], signals=True):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    with pytest.raises(ValueError, match="my own"):
        async with forge.worker(queues=["q"], signals=True):
            raise ValueError("my own")
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    await forge.aclose()


async def test_u17_a_failed_start_restores_the_handlers() -> None:
    forge = Forge("sqlite:////nowhere/at/all/jobs.db")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Exception, match="nowhere"):
        async with forge.worker(queues=["q"], signals=True):
            pass
    assert signal.getsignal(signal.SIGTERM) is before


async def test_u17_a_cancel_of_the_users_own_is_not_swallowed() -> None:
    forge = Forge("memory://")
    inside = asyncio.Event()

    async def serve() -> None:
        async with forge.worker(queues=["q"], signals=True):
            inside.set()
            await asyncio.sleep(3_600)

    task = asyncio.create_task(serve())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await forge.aclose()


def test_a_handler_in_forge_run_sees_no_error_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
            import os, signal, sys
            from forge_jobs import Forge

            forge = Forge("memory://")

            @forge.task
            async def look() -> None:
                print("handled:", sys.exc_info()[1], flush=True)
                os.kill(os.getpid(), signal.SIGTERM)

            look.enqueue()
            forge.run()
        """)
    )
    answer = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert answer.stdout == "handled: None\n", answer.stderr


def test_u17_only_the_main_thread_has_signals() -> None:
    forge = Forge("memory://")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            forge.run(["q"])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    [error] = errors
    assert isinstance(error, Refused)
    assert "needs the main thread" in str(error)


async def test_u17_run_is_refused_on_an_event_loop() -> None:
    with pytest.raises(Refused, match=r"async with forge\.worker\(signals=True\)"):
        Forge("memory://").run(["q"])
