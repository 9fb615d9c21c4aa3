"""Rate limits of the fake Telegram: what is counted, and what is refused."""

from collections.abc import AsyncIterator

import pytest

from forge_jobs.testing.clock import MovableClock
from telegram_gateway.fake import FakeTelegram, FloodControl, FloodRate, fake_telegram
from tests.gateway.fake.conftest import Caller


@pytest.fixture
async def fake(clock: MovableClock) -> AsyncIterator[FakeTelegram]:
    flooding = FloodControl(bot=FloodRate(4.0, 4))
    async with fake_telegram(clock=clock, flooding=flooding) as made:
        yield made


async def test_limits_per_chat_and_bot_and_early_retries_are_refused(
    fake: FakeTelegram, call: Caller, clock: MovableClock
) -> None:
    (bot,) = fake.bots.values()
    for chat in (7, 8):
        fake.say(bot, "hello", chat=chat)
    for _ in range(3):
        await call("sendMessage", chat_id=7, text="quick")
    assert await call.refused("sendMessage", chat_id=7, text="x") == (429, {"retry_after": 1})
    await call("sendMessage", chat_id=8, text="the fourth of the bot")
    assert await call.refused("sendMessage", chat_id=8, text="x") == (429, {"retry_after": 1})
    clock.advance(0.9)
    assert await call.refused("sendMessage", chat_id=7, text="x") == (429, {"retry_after": 1})
    # Only messages are counted.
    await call("sendChatAction", chat_id=7, action="typing")
    clock.advance(0.1)
    await call("sendMessage", chat_id=7, text="slow")
    assert bot.chat(7).texts() == ["quick"] * 3 + ["slow"]
    assert (await call.refused("sendMessage", chat_id=7, text="x"))[0] == 429
