"""Workers inside the user's own process: which queues, which names, entering and leaving."""

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import BadConfig, Context, EngineSettings, Forge, NoQueues, Refused
from forge_jobs.engine.requests import published_kinds_cache


async def settings_of(forge: Forge) -> dict[str, int]:
    store = await forge.aready()
    return {queue.name: queue.slots for queue in await store.queues.all()}


async def test_a_worker_gives_its_handle_and_drains_when_left(forge: Forge) -> None:
    @forge.task(queue="mail")
    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "finished"

    started = asyncio.Event()

    @forge.task(queue="mail")
    async def signal() -> None:
        started.set()

    async with forge.worker(queues=["mail", "video:2"], prefix="web", version="7") as handle:
        assert len(handle.host_id) == 26
        store = await forge.aready()
        (process,) = await store.processes.all()
        assert process.host_id == handle.host_id
        assert process.label.startswith("web-worker-7-")
        job = await slow.aenqueue()
        await signal.aenqueue()
        await asyncio.wait_for(started.wait(), 30)
        assert handle.request_cancel("01ARZ3NDEKTSV4RRFFQ69G5FAV") is False
    assert await job.aresult(timeout=0) == "finished"
    assert await store.processes.all() == []
    assert await settings_of(forge) == {"mail": 10, "video": 2}


async def test_workers_publish_their_kinds_for_others() -> None:
    with Forge("memory://published") as worker, Forge("memory://published") as producer:

        @worker.task(queue="mail")
        async def send(to: str) -> str:
            return to.upper()

        async with worker.worker(queues=["mail"]):
            job = await producer.aenqueue("send", {"to": "x"})
            assert await job.aresult(timeout=30) == "X"
            assert (await job.arefresh()).queue == "mail"


@pytest.mark.parametrize(
    ("queues", "slots", "expected"),
    [
        (["mail"], None, {"mail": 7}),
        (["mail:3", "other"], None, {"mail": 3, "other": 10}),
        (["mail", "other"], 4, {"mail": 7, "other": 4}),
        ({"mail": 5}, None, {"mail": 5}),
        ("mail:2,other:1", None, {"mail": 2, "other": 1}),
        (None, None, {"mail": 7, "video": 10}),
    ],
)
async def test_slots_of_queues(
    forge: Forge, queues: Any, slots: int | None, expected: dict[str, int]
) -> None:
    forge.queue("mail", slots=7)
    forge.queue("video")
    async with forge.worker(queues=queues, slots=slots):
        assert await settings_of(forge) == expected


async def test_an_operators_setting_stays(forge: Forge) -> None:
    store = await forge.aready()
    await store.queues.ensure("mail", slots=3)
    forge.queue("mail", slots=50)
    async with forge.worker():
        assert await settings_of(forge) == {"mail": 3}


async def test_queues_from_environment_and_file(
    forge: Forge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "forge.toml").write_text("[queues]\nmail = 20\n")
    monkeypatch.chdir(tmp_path)
    async with forge.worker() as handle:
        (process,) = await handle.storage.processes.all()
        assert process.queues == ("mail",)
    monkeypatch.setenv("FORGE_QUEUES", "video:2")
    monkeypatch.setenv("FORGE_WORKER_PREFIX", "pod")
    monkeypatch.setenv("FORGE_WORKER_ID", "0042")
    async with forge.worker() as handle:
        (process,) = await handle.storage.processes.all()
        assert process.queues == ("video",)
        assert process.label.startswith("pod-worker-")
        assert process.label.endswith("-0042")


async def test_a_worker_without_queues_says_how_to_name_them(forge: Forge) -> None:
    @forge.task(queue="mail")
    def send() -> None: ...

    @forge.task(queue="video")
    def encode() -> None: ...

    with pytest.raises(NoQueues) as caught:
        async with forge.worker(queues=[]):
            raise AssertionError("it must not start")
    for part in ("queues=['mail', 'video']", "FORGE_QUEUES=mail,video", "forge.toml"):
        assert part in str(caught.value)
    store = await forge.aready()
    assert await store.processes.all() == []
    with Forge("memory://") as empty, pytest.raises(NoQueues, match="FORGE_QUEUES=mail"):
        await empty.worker().__aenter__()


@pytest.mark.parametrize("queues", [["a b"], ["mail:x"], ["mail:1", "mail:2"], [5], {"mail": -1}])
async def test_bad_queues_are_named(forge: Forge, queues: Any) -> None:
    with pytest.raises(BadConfig, match="queues: "):
        await forge.worker(queues=queues).__aenter__()


async def test_a_worker_is_entered_once(forge: Forge) -> None:
    worker = forge.worker(queues=["mail"])
    async with worker:
        with pytest.raises(Refused, match="running already"):
            await worker.__aenter__()
    async with worker as handle:
        assert handle.host_id


async def test_an_error_in_the_with_block_still_stops_the_worker(forge: Forge) -> None:
    with pytest.raises(KeyError):
        async with forge.worker(queues=["mail"]):
            raise KeyError("mine")
    store = await forge.aready()
    assert await store.processes.all() == []
    assert forge.client.workers == []


async def test_settings_of_a_worker(forge: Forge) -> None:
    settings = EngineSettings(lease_s=4.0)
    async with forge.worker(queues=["mail"], settings=settings) as handle:
        (process,) = await handle.storage.processes.all()
        assert process.lease_s == 4.0


async def test_drain_of_some_queues_and_with_a_limit(forge: Forge) -> None:
    @forge.task(queue="a")
    def in_a() -> None: ...

    @forge.task(queue="b")
    def in_b() -> None: ...

    await in_a.aenqueue_many([()] * 3)
    await in_b.aenqueue_many([()] * 3)
    assert (await forge.drain(["a"])).ran == 3
    assert (await forge.drain(["b"], limit=2)).ran == 2
    assert (await forge.drain()).ran == 1
    assert (await forge.drain()).ran == 0


def test_a_worker_does_not_survive_a_fork() -> None:
    script = """
        import asyncio, os, warnings
        from forge_jobs import Forge, Refused

        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads is the point here
        forge = Forge("memory://")

        @forge.task
        def job() -> None: ...

        async def main():
            worker = forge.worker(queues=["default"])
            await worker.__aenter__()
            pid = os.fork()
            if pid == 0:
                job.enqueue()
                try:
                    await worker.__aexit__(None, None, None)
                except Refused as error:
                    os.write(1, str(error).encode())
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            await worker.__aexit__(None, None, None)
            await forge.aclose()
            print("\\nparent", status)

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert "from which this one was forked: start workers after the fork" in done.stdout
    assert done.stdout.endswith("parent 0\n")


async def test_a_handler_enqueues_kinds_that_other_workers_published() -> None:
    with Forge("memory://routed") as worker, Forge("memory://routed") as other:
        store = await worker.aready()
        await store.queues.publish({"send": "mail"})

        @worker.task
        async def begin(ctx: Context) -> str:
            return (await ctx.aenqueue("send", {"to": "x"})).id

        @worker.task
        def in_a_thread(ctx: Context) -> str:
            return ctx.enqueue("send", {"to": "x"}).id

        async with worker.worker(queues=["default"]):
            for task in (begin, in_a_thread):
                sent = await (await task.aenqueue()).aresult(timeout=30)
                assert (await other.job(sent).arefresh()).queue == "mail"
        assert await asyncio.to_thread(other.queue_of, "send") == "mail"
        assert await asyncio.to_thread(other.queue_of, "nobody") == "default"


async def test_a_handler_reads_kinds_published_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_kinds_cache, "FRESH_S", 0.0)
    with Forge("memory://routed-later") as forge:
        store = await forge.aready()

        @forge.task
        async def begin(ctx: Context) -> str:
            return (await ctx.aenqueue("send", {"to": "x"})).id

        async with forge.worker(queues=["default"]):
            await store.queues.publish({"send": "mail"})
            queues: list[str | None] = []
            end = time.monotonic() + 60
            while "mail" not in queues and time.monotonic() < end:
                sent = await (await begin.aenqueue()).aresult(timeout=30)
                queues.append((await forge.job(sent).arefresh()).queue)
            assert queues[-1] == "mail"
