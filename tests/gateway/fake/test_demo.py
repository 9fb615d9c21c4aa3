"""A demo that is restarted in its folder continues with its jobs."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from telegram_gateway.demo import DemoEnvironment
from telegram_gateway.demo.environment import LastMessage

TIMEOUT_S = 60
# A retry comes ten minutes later, or at once.
AT_ONCE_S = 300


async def wait_for_job(
    demo: DemoEnvironment, condition: Callable[[LastMessage], bool]
) -> LastMessage:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            last_message = await demo.last_message("shop")
            if last_message is not None and condition(last_message):
                return last_message
            await asyncio.sleep(0.02)


async def wait_for_reply(demo: DemoEnvironment, slug: str) -> list[str]:
    async with asyncio.timeout(TIMEOUT_S):
        while not demo.chat(slug).texts():
            await asyncio.sleep(0.02)
    return demo.chat(slug).texts()


async def test_a_stopped_demo_continues_in_its_folder(tmp_path: Path) -> None:
    async with DemoEnvironment(tmp_path).running() as demo:
        await demo.shop.stop()
        demo.say("shop", "cake")
        for tries in (1, 2):
            await wait_for_job(
                demo, lambda last_message, tries=tries: last_message.attempts == tries
            )
            await wait_for_job(demo, lambda last_message: last_message.status == "failed")
            await demo.skip("shop")
        before = await wait_for_job(
            demo,
            lambda last_message: last_message.attempts == 3 and last_message.status == "failed",
        )
    async with DemoEnvironment(tmp_path).running() as demo:
        after = await demo.last_message("shop")
        assert after is not None
        assert (after.id, after.attempts) == (before.id, 3)
        # The skipped waits stay skipped.
        assert AT_ONCE_S < after.due_in_s <= before.due_in_s
        await demo.skip("shop")
        assert await wait_for_reply(demo, "shop") == ["Order 1 is noted: cake"]
        demo.say("echo", "still here")
        assert await wait_for_reply(demo, "echo") == ["still here"]


@pytest.mark.processes
async def test_a_killed_demo_continues_immediately(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.fake.killed_demo", str(tmp_path)
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert await child.wait() == -signal.SIGKILL
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    async with DemoEnvironment(tmp_path).running() as demo:
        # The lease of the killed process is 24 hours.
        assert await wait_for_reply(demo, "echo") == ["before the end"]


async def test_an_unreadable_state_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_bytes(b"{")
    async with DemoEnvironment(tmp_path).running() as demo:
        assert await demo.last_message("shop") is None
