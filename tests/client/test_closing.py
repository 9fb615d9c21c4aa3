"""U6: a Forge that was closed opens again when it is used again."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from forge_jobs import Closed, Forge, JobQueue


def _threads() -> set[threading.Thread]:
    """The I/O threads of this process; those of other tests may be among them."""
    return {thread for thread in threading.enumerate() if thread.name == "forge-io"}


def test_u6_every_call_opens_a_closed_forge_again(forge: Forge) -> None:
    @forge.task
    def job() -> None: ...

    handle = job.enqueue()
    calls: list[Callable[[], Any]] = [
        job.enqueue,
        lambda: job.enqueue_many([()]),
        lambda: forge.enqueue("job"),
        lambda: forge.enqueue("elsewhere"),
        handle.refresh,
        handle.cancel,
        handle.logs,
        lambda: asyncio.run(_await(job.aenqueue)),
        lambda: asyncio.run(_await(handle.arefresh)),
        forge.ready,
    ]
    for call in calls:
        forge.close()
        forge.close()
        call()
    forge.close()
    assert handle.refresh().status == "cancelled"


def test_u6_results_are_awaited_after_a_close(forge: Forge) -> None:
    @forge.task
    def job() -> int:
        return 7

    handle = job.enqueue()
    asyncio.run(_await(forge.drain))
    for _ in range(3):
        forge.close()
        assert handle.result(timeout=10) == 7
        assert asyncio.run(_await(lambda: handle.aresult(timeout=10))) == 7


def test_u6_a_second_test_client_of_an_application_works(any_url: str) -> None:
    """Each TestClient runs the lifespan on an event loop of its own, with the same Forge."""
    others = _threads()
    forge = Forge(any_url)

    @forge.task(queue="mail")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with forge.worker(queues=["mail"]):
            yield
        await forge.aclose()

    app = FastAPI(lifespan=lifespan)

    @app.get("/greet/{name}")
    async def show(name: str) -> str:
        return await (await greet.aenqueue(name)).aresult(timeout=30)

    for name in ("Ada", "Grace", "Linus"):
        with TestClient(app) as client:
            assert client.get(f"/greet/{name}").json() == f"Hello, {name}!"
    assert _threads() <= others, "closing ends the I/O thread"


def test_u6_a_pull_queue_opens_again_too(any_url: str) -> None:
    queue = JobQueue.open(any_url)
    job_id = queue.enqueue("resize", {"path": "a.png"})
    queue.close()
    queue.close()
    job = queue.dequeue(["resize"])
    assert job is not None
    assert job.id == job_id
    queue.complete(job)
    queue.close()


def test_u6_threads_that_enqueue_while_others_close(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that a close overtakes says so; all others are stored, none hangs, and nothing is left
    for the garbage collector to complain about."""
    others = _threads()
    forge = Forge(shared_url)

    @forge.task
    def job(n: int) -> None: ...

    stored: list[str] = []
    unexpected: list[BaseException] = []
    done = threading.Event()

    def enqueue() -> None:
        number = 0
        while number < 20 or not done.is_set():
            try:
                stored.append(job.enqueue(number).id)
                number += 1
            except Closed:
                pass
            except BaseException as error:
                unexpected.append(error)
                return
            time.sleep(0.005)

    def close() -> None:
        try:
            for pause_s in (0.0, 0.01, 0.05, 0.1, 0.3, 0.0, 0.2, 0.01):
                forge.close()
                time.sleep(pause_s)
        except BaseException as error:
            unexpected.append(error)

    closers = [threading.Thread(target=close) for _ in range(2)]
    producers = [threading.Thread(target=enqueue) for _ in range(4)]
    for thread in (*closers, *producers):
        thread.start()
    for thread in closers:
        thread.join(120)
        assert not thread.is_alive(), "a close hangs"
    done.set()
    for thread in producers:
        thread.join(60)
        assert not thread.is_alive(), "a producer hangs"
    assert unexpected == []
    assert len(stored) >= 80
    for job_id in stored:
        forge.job(job_id).refresh()
    forge.close()
    assert _threads() <= others
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_u6_a_store_that_was_opened_as_its_close_began_opens_again(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later call raised Closed, until the next close."""
    forge = Forge(any_url)

    @forge.task
    def job() -> None: ...

    handle = job.enqueue()
    access = forge.client.access
    send = access.io.start

    def open_first(work: Callable[[], Any]) -> Any:
        monkeypatch.undo()
        thread = threading.Thread(target=forge.ready)
        thread.start()
        thread.join()
        return send(work)

    monkeypatch.setattr(access.io, "start", open_first)
    forge.close()
    assert handle.refresh().status == "pending"
    forge.close()


async def test_u6_tasks_that_open_while_another_closes() -> None:
    others = _threads()
    forge = Forge("memory://")
    await asyncio.gather(
        *(forge.aready() for _ in range(20)),
        *(forge.aclose() for _ in range(5)),
        *(forge.aready() for _ in range(20)),
        return_exceptions=False,
    )
    await forge.aclose()
    assert _threads() <= others


async def test_u6_a_cancelled_opening_stays_cancelled() -> None:
    forge = Forge("memory://")
    waiting = asyncio.create_task(forge.aready())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await forge.aclose()


async def _await(call: Callable[[], Any]) -> Any:
    return await call()
