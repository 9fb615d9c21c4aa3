"""A fake Telegram with the system clock, and a bot, for third-party libraries."""

from collections.abc import AsyncIterator

import pytest

from telegram_gateway.fake import FakeBot, FakeTelegram, fake_telegram

TOKEN = "4711:AAabcdefghijklmnopqrstuvwxyz_0123456"
SECRET = "a-secret_of-the-webhook-0123456789"


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with fake_telegram(known_only=True) as made:
        yield made


@pytest.fixture
def bot(fake: FakeTelegram) -> FakeBot:
    return fake.bot(TOKEN, name="Echo", username="echo_bot")
