"""A demo that is started again in its folder goes on with what it had."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from telegram_gateway.demo import DemoEnvironment
from telegram_gateway.demo.environment import Told

PATIENCE_S = 60
# A retry comes ten minutes later, or at once.
AT_ONCE_S = 300


async def until_told(stage: DemoEnvironment, fits: Callable[[Told], bool]) -> Told:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = await stage.told("shop")
            if told is not None and fits(told):
                return told
            await asyncio.sleep(0.02)


async def until_answered(stage: DemoEnvironment, slug: str) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        while not stage.chat(slug).texts():
            await asyncio.sleep(0.02)
    return stage.chat(slug).texts()


async def test_a_demo_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    async with DemoEnvironment(tmp_path).running() as stage:
        await stage.shop.stop()
        stage.say("shop", "cake")
        for tries in (1, 2):
            await until_told(stage, lambda told, tries=tries: told.attempts == tries)
            await until_told(stage, lambda told: told.status == "failed")
            await stage.skip("shop")
        before = await until_told(
            stage, lambda told: told.attempts == 3 and told.status == "failed"
        )
    async with DemoEnvironment(tmp_path).running() as stage:
        after = await stage.told("shop")
        assert after is not None
        assert (after.id, after.attempts) == (before.id, 3)
        # The waits that were skipped do not come back.
        assert AT_ONCE_S < after.due_in_s <= before.due_in_s
        await stage.skip("shop")
        assert await until_answered(stage, "shop") == ["Order 1 is noted: cake"]
        stage.say("echo", "still here")
        assert await until_answered(stage, "echo") == ["still here"]


@pytest.mark.processes
async def test_a_demo_that_was_killed_goes_on_at_once(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.fake.dying_demo", str(tmp_path)
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await child.wait() == -signal.SIGKILL
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    async with DemoEnvironment(tmp_path).running() as stage:
        # The lease of the dead one ends tomorrow.
        assert await until_answered(stage, "echo") == ["before the end"]


async def test_notes_that_cannot_be_read_are_no_notes(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_bytes(b"{")
    async with DemoEnvironment(tmp_path).running() as stage:
        assert await stage.told("shop") is None
