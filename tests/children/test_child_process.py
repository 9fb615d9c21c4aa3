"""Warm child processes: lines in both directions, termination, no leaked process or descriptor."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from forge_jobs.kit.children.line_child import LineChild
from forge_jobs.kit.children.parent_link import BadLine
from forge_jobs.kit.children.process import ChildExit, ChildGone
from forge_jobs.kit.children.streams import MAX_OUTPUT_LINE

HERE = Path(__file__).parent
COMMAND = [sys.executable, str(HERE / "plain_child.py")]

Start = Callable[..., Awaitable[LineChild]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts children, waits for their ready line and terminates them after the test."""
    children: list[LineChild] = []

    async def ready(**options: object) -> LineChild:
        output: Callable[[str], None] = lambda line: None  # noqa: E731
        child = await LineChild.start(COMMAND, **{"on_output": output, **options})  # type: ignore[arg-type]
        children.append(child)
        assert await child.receive() == b"ready"
        return child

    yield ready
    for child in children:
        await child.terminate(0)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


async def test_lines_go_both_ways(start: Start) -> None:
    child = await start()
    for text in ("one", "zwölf ✓", "x" * 300_000):
        await child.send(b"echo " + text.encode())
        assert await child.receive() == text.encode()


async def test_many_lines_arrive_in_order(start: Start) -> None:
    child = await start()
    await child.send(b"many 20000")
    for number in range(20_000):
        assert await child.receive() == b"%d" % number


async def test_a_line_has_a_limit_both_ways(start: Start) -> None:
    child = await start(line_limit=1_000)
    with pytest.raises(BadLine):
        await child.send(b"x" * 1_000)
    with pytest.raises(BadLine):
        await child.send(b"echo a\nb")
    with pytest.raises(BadLine):
        await child.send(b"")
    await child.send(b"wide 900")
    assert await child.receive() == b"z" * 900
    await child.send(b"wide 5000")
    with pytest.raises(BadLine):
        await child.receive()


async def test_private_pipes_do_not_reach_grandchildren(start: Start) -> None:
    child = await start()
    await child.send(b"descriptors")
    # Standard input, output and error, and the directory being listed.
    assert await child.receive() == b"4"


async def test_output_is_delivered_line_by_line(start: Start) -> None:
    printed: list[str] = []
    child = await start(on_output=printed.append)
    await child.send(b"print hello")
    assert await child.receive() == b"printed"
    await child.send(b"flood 100000")
    assert await child.receive() == b"flooded"
    await child.send(b"print over")
    assert await child.receive() == b"printed"
    await child.terminate(0)
    assert printed[:2] == ["hello", "and hello"]
    assert printed[-1] == "and over"
    assert max(map(len, printed)) <= MAX_OUTPUT_LINE + 2
    assert any(line.endswith(" …") for line in printed)


@pytest.mark.parametrize("code", [0, 1, 77])
async def test_the_exit_code_is_reported(start: Start, code: int) -> None:
    child = await start()
    await child.send(b"exit %d" % code)
    assert await child.receive() is None
    assert await child.wait() == ChildExit(code)
    assert str(child.exit) == f"exit code {code}"
    with pytest.raises(ChildGone):
        await child.send(b"echo late")


async def test_a_kill_is_reported_as_a_signal(start: Start) -> None:
    told: list[int] = []
    child = await start(on_exit=lambda: told.append(1))
    os.kill(child.pid, signal.SIGKILL)
    ended = await child.wait()
    assert ended.signal == signal.SIGKILL
    assert str(ended) == "signal 9 (SIGKILL)"
    assert told == [1]


async def test_lines_before_an_exit_are_not_lost(start: Start) -> None:
    child = await start()
    await child.send(b"many 500")
    await child.send(b"exit 3")
    await child.wait()
    received = [line async for line in _all_lines(child)]
    assert received == [b"%d" % number for number in range(500)]


async def test_a_child_exits_when_its_input_is_closed(start: Start) -> None:
    child = await start()
    child.close_input()
    async with asyncio.timeout(60):
        assert await child.wait() == ChildExit(0)


async def test_terminate_signals_the_whole_group(start: Start) -> None:
    child = await start()
    await child.send(b"grandchild")
    grandchild = int(await child.receive() or b"0")
    assert alive(grandchild)
    ended = await child.terminate(30)
    assert ended.signal == signal.SIGTERM
    assert gone_within([grandchild, child.pid], 30)


async def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(start: Start) -> None:
    child = await start()
    await child.send(b"stubborn")
    assert await child.receive() == b"stubborn"
    ended = await child.terminate(0.3)
    assert ended.signal == signal.SIGKILL


async def test_a_child_that_holds_the_interpreter_lock_is_killed(start: Start) -> None:
    child = await start()
    await child.send(b"hold")
    assert await child.receive() == b"holding"
    ended = await child.terminate(0.3)
    assert ended.signal in (signal.SIGTERM, signal.SIGKILL)


async def test_grandchildren_of_a_dead_child_are_killed(start: Start) -> None:
    child = await start()
    await child.send(b"grandchild")
    grandchild = int(await child.receive() or b"0")
    await child.send(b"exit 1")
    await child.wait()
    assert gone_within([grandchild], 30)


async def test_no_zombies_threads_or_descriptors_are_left() -> None:
    pids: list[int] = []

    async def once() -> None:
        child = await LineChild.start(COMMAND, on_output=lambda line: None)
        pids.append(child.pid)
        await child.receive()
        await child.terminate(0)

    await once()
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    runs = 10
    for _ in range(runs):
        await once()
    gc.collect()
    # A thread of an earlier test may open one meanwhile; a leak opens at least one with each run.
    assert len(os.listdir("/dev/fd")) < before + runs
    assert not set(pids) & {child.pid for child in psutil.Process().children()}


async def test_a_command_that_does_not_exist_is_an_error() -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(FileNotFoundError):
        await LineChild.start(["/nonexistent/program"], on_output=lambda line: None)
    assert len(os.listdir("/dev/fd")) <= before


async def test_an_exit_is_noticed_without_a_pidfd(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError(pid)

    monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    child = await start()
    await child.send(b"grandchild")
    grandchild = int(await child.receive() or b"0")
    await child.send(b"exit 5")
    async with asyncio.timeout(60):
        assert await child.wait() == ChildExit(5)
    assert gone_within([grandchild], 30)


@pytest.mark.parametrize("last_line", ["", "sleep 300", "stubborn"])
def test_the_lifeline_thread_alone_kills_the_group_of_a_killed_parent(last_line: str) -> None:
    _kill_parent(last_line, {"NO_KERNEL_SIGNAL": "1"})


@pytest.mark.parametrize(
    "last_line",
    [
        "",
        "sleep 300",
        "stubborn",
        # Only the kernel can end a process that never releases the interpreter lock.
        *(["hold"] if sys.platform == "linux" else []),
    ],
)
def test_a_killed_parent_kills_child_and_grandchild(last_line: str) -> None:
    _kill_parent(last_line, {})


def _kill_parent(last_line: str, environment: dict[str, str]) -> None:
    parent = subprocess.Popen(
        [sys.executable, str(HERE / "orphan_maker.py"), last_line],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()
    assert gone_within(pids, 30)


async def _all_lines(child: LineChild) -> AsyncIterator[bytes]:
    while (line := await child.receive()) is not None:
        yield line
