"""The I/O thread: calls from any thread, shutdown, forks."""

import asyncio
import os
import threading
from concurrent.futures import CancelledError, Future

import pytest

from forge_jobs.kit.io_thread import IoThread

DEADLINE_S = 60.0


async def answer() -> str:
    return threading.current_thread().name


def test_the_first_call_starts_the_only_thread() -> None:
    io = IoThread("io-test")
    assert "io-test" not in {thread.name for thread in threading.enumerate()}
    assert io.call(answer, DEADLINE_S) == "io-test"
    assert io.call(answer, DEADLINE_S) == "io-test"
    assert [thread.name for thread in threading.enumerate()].count("io-test") == 1
    io.close()
    assert "io-test" not in {thread.name for thread in threading.enumerate()}


def test_an_error_reaches_the_caller() -> None:
    io = IoThread()

    async def fail() -> None:
        raise ValueError("over there")

    with pytest.raises(ValueError, match="over there"):
        io.call(fail, DEADLINE_S)
    io.close()


def test_a_call_times_out_and_cancels_the_coroutine() -> None:
    io = IoThread()
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        io.call(hang, 0.05)
    assert cancelled.wait(DEADLINE_S)
    io.close()


def test_calls_from_many_threads() -> None:
    io = IoThread()
    names: list[str] = []
    threads = [
        threading.Thread(target=lambda: names.append(io.call(answer, DEADLINE_S)))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert names == ["forge-io"] * 16
    io.close()


async def test_a_call_inside_a_running_loop_does_not_need_that_loop() -> None:
    io = IoThread()
    assert io.call(answer, DEADLINE_S) == "forge-io"
    io.close()


def test_a_call_on_the_io_thread_is_refused() -> None:
    io = IoThread()

    async def recurse() -> None:
        io.call(answer, DEADLINE_S)

    with pytest.raises(RuntimeError, match="wait for itself"):
        io.call(recurse, DEADLINE_S)
    io.close()


def test_close_cancels_running_calls_and_is_idempotent() -> None:
    io = IoThread()
    started, ended = threading.Event(), threading.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()

    io.spawn(hang)
    assert started.wait(DEADLINE_S)
    io.close()
    assert ended.is_set()
    io.close()
    assert io.call(answer, DEADLINE_S) == "forge-io"
    io.close()


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_a_thread_of_its_own() -> None:
    io = IoThread()
    io.call(answer, DEADLINE_S)
    child = os.fork()
    if child == 0:
        try:
            good = io.call(answer, DEADLINE_S) == "forge-io"
        except BaseException:
            good = False
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert io.call(answer, DEADLINE_S) == "forge-io"
    io.close()


def test_a_task_that_was_started_by_an_ending_one_ends_too() -> None:
    """It was left pending in a closed loop, with its connection and everybody who waited for it."""
    io = IoThread()
    ended = threading.Event()

    async def later() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()

    async def first() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            tasks.add(asyncio.create_task(later()))
            await asyncio.sleep(0)

    async def begin() -> None:
        tasks.add(asyncio.create_task(first()))
        await asyncio.sleep(0)

    tasks: set[asyncio.Task[None]] = set()
    io.call(begin, DEADLINE_S)
    io.close()
    assert ended.is_set()


def test_a_call_that_reaches_a_stopped_loop_is_cancelled() -> None:
    io = IoThread()
    begun = threading.Event()

    async def call() -> None:
        begun.set()

    async def stop() -> "list[Future[None]]":
        late = [io.spawn(call)]
        io.stop_from_loop()
        return late

    [late] = io.call(stop, DEADLINE_S)
    with pytest.raises(CancelledError):
        late.result(DEADLINE_S)
    assert not begun.is_set()
    io.join_stopped()
