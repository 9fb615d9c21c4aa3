"""The fake Telegram with the gateway: every delivered update is answered in order and once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from telegram_gateway.config import load
from telegram_gateway.fake import FakeBot, FakeTelegram, FastClock, Fault, fake_telegram
from telegram_gateway.fake.faults import Trouble
from telegram_gateway.gateway import Gateway
from telegram_gateway.polling import poll
from tests.gateway.conftest import SECRET
from tests.gateway.fake.conftest import TOKEN
from tests.gateway.fake_api import serve_app, until

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
# As many as a chat may get at once: the gateway keeps to one per second beyond that.
TEXTS = ["one", "two", "three"]
CHATS = range(1, 9)


@asynccontextmanager
async def both(folder: Path) -> AsyncGenerator[tuple[FakeTelegram, Gateway], None]:
    async with fake_telegram(clock=FastClock(20), answer_within_s=1_200) as fake:
        file = folder / "bots.yaml"
        file.write_text(ECHO, encoding="utf-8")
        settings, bots, _ = load(
            {
                "BOTS_CONFIG": str(file),
                "DATABASE_URL": f"sqlite:///{folder}/gateway.db",
                "TELEGRAM_API_BASE": fake.base,
                "BOT_ECHO_TOKEN": TOKEN,
                "BOT_ECHO_SECRET": SECRET,
            }
        )
        gateway = Gateway(settings, bots)
        async with gateway.running():
            yield fake, gateway


def answers(bot: FakeBot) -> list[list[str]]:
    return [bot.chat(chat).texts() for chat in CHATS]


@pytest.mark.parametrize("away", [False, True])
async def test_every_update_is_answered_in_order_and_once(tmp_path: Path, away: bool) -> None:
    async with both(tmp_path) as (fake, gateway), serve_app(gateway.app) as base:
        bot = fake.bot(TOKEN)
        # what a gateway answers that stops, or that cannot reach its database
        gateway.webhook.draining = away
        hook = {"url": f"{base}/bot/echo", "secret_token": SECRET}
        await gateway.api.call(gateway.bots[0], "setWebhook", hook)
        for text in TEXTS:
            for chat in CHATS:
                fake.say(bot, text, chat=chat)
        if away:
            await until(lambda: "503" in (bot.webhook.last_error if bot.webhook else ""))
            assert not bot.delivered
            gateway.webhook.draining = False
        await until(lambda: not bot.waiting, 60)
        await until(lambda: answers(bot) == [TEXTS for _ in CHATS], 60)
        assert len(bot.delivered) == len(TEXTS) * len(CHATS)
        assert not bot.expired


async def test_polling_answers_every_update_in_order_and_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (fake, gateway):
        bot = fake.bot(TOKEN)
        for text in TEXTS:
            for chat in CHATS:
                fake.say(bot, text, chat=chat)
        polling = asyncio.create_task(poll(gateway, gateway.bots[0]))
        await until(lambda: not bot.waiting, 60)
        await until(lambda: answers(bot) == [TEXTS for _ in CHATS], 60)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def test_only_a_lost_response_repeats_a_message(tmp_path: Path) -> None:
    async with both(tmp_path) as (fake, gateway), serve_app(gateway.app) as base:
        bot = fake.bot(TOKEN)
        hook = {"url": f"{base}/bot/echo", "secret_token": SECRET}
        await gateway.api.call(gateway.bots[0], "setWebhook", hook)
        fake.faults += [
            Fault(trouble=Trouble.FLOOD, method="sendMessage", seconds=1),
            Fault(trouble=Trouble.LOST, method="sendMessage"),
        ]
        for text in ("one", "two"):
            fake.say(bot, text, chat=1)
        await until(lambda: "two" in bot.chat(1).texts(), 60)
        assert bot.chat(1).texts() == ["one", "one", "two"]
