"""grammY (JavaScript): a bot echoes through the fake Telegram, by polling and by webhook."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from telegram_gateway.fake import FakeBot, FakeTelegram
from tests.gateway.fake_api import until
from tests.gateway.peers.conftest import SECRET, TOKEN

SCRIPT = Path(__file__).with_name("echo_bot.mjs")


def node() -> str:
    """Node of the system, else the one installed by the setup."""
    schemas = f"{os.environ.get('PATH', '')}{os.pathsep}{Path(sys.executable).parent}"
    found = shutil.which("node", path=schemas)
    assert found is not None, "node is missing: run make setup"
    return found


@asynccontextmanager
async def echo_bot(fake: FakeTelegram, way: str) -> AsyncGenerator[None, None]:
    settings = {"TOKEN": TOKEN, "API_ROOT": fake.base, "WAY": way, "SECRET": SECRET}
    process = await asyncio.create_subprocess_exec(
        node(), str(SCRIPT), env={**os.environ, **settings}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.processes
@pytest.mark.parametrize("way", ["polling", "webhook"])
async def test_its_bot_echoes(fake: FakeTelegram, bot: FakeBot, way: str) -> None:
    async with echo_bot(fake, way):
        fake.say(bot, "/start")
        fake.say(bot, "größer & mehr 😀")
        await until(lambda: len(bot.chat(7).texts()) == 2, 60)
        assert bot.chat(7).texts() == ["welcome", "größer & mehr 😀"]
        fake.say(bot, "ask")
        await until(lambda: len(bot.chat(7).texts()) == 3, 60)
        fake.press(bot, bot.chat(7).last_message, "yes")
        await until(lambda: len(bot.chat(7).received("edit")) == 1, 60)
        (answer,) = bot.chat(7).received("answer")
        assert answer.message["text"] == "you chose yes"
        assert bot.chat(7).received("edit")[0].message["text"] == "chosen: yes"
        if bot.webhook is not None:
            assert bot.webhook.last_error == ""
        assert (bot.webhook is None) == (way == "polling")
