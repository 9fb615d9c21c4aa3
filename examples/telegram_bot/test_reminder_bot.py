"""Tests of the bot against a fake Telegram on this machine."""

import asyncio
import os

import pytest
import reminder_bot
from reminder_bot import forge, handle, send, take_updates

from forge_jobs import testing
from telegram_gateway.fake import fake_telegram

os.environ["FORGE_URL"] = "memory://"
TOKEN = "4711:AAabcdefghijklmnopqrstuvwxyz0123456"


def test_updates_are_stored_once_and_answered(monkeypatch):
    async def main():
        async with fake_telegram() as telegram:
            monkeypatch.setattr(reminder_bot, "BASE", telegram.base)
            monkeypatch.setattr(reminder_bot, "TOKEN", TOKEN)
            bot = telegram.bot(TOKEN)
            telegram.say(bot, "/remind 2h tea")
            offset = 0
            for _ in range(2):  # the process was killed before it asked for what follows
                offset = await asyncio.to_thread(take_updates, 0, wait_s=0)
            assert offset > 1
            await forge.adrain()
            assert [one.message["text"] for one in bot.chat(7).received()] == ["in 2h: tea"]

    asyncio.run(main())
    testing.assert_enqueued(forge, handle, {"chat": 7}, times=1)
    testing.assert_enqueued(forge, send, {"text": "tea"}, status="scheduled")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("tea", "write: /remind 10m tea"),
        ("/remind soon tea", "soon is no time: write 10m, 2h or 1d"),
    ],
)
def test_what_it_does_not_understand_is_explained(text, answer):
    handle.enqueue(8, text)
    forge.drain(["updates"]).run()
    testing.assert_enqueued(forge, send, {"chat": 8, "text": answer})
