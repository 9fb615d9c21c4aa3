"""Delivery rules of webhooks, on a clock that the test advances."""

import asyncio

import pytest

from forge_jobs.testing.clock import MovableClock
from telegram_gateway.fake import FakeBot, FakeTelegram
from tests.gateway.fake.conftest import Caller
from tests.gateway.fake.receiver import Receiver
from tests.gateway.fake_api import until


async def quiet(bot: FakeBot, hook: Receiver, count: int, under_way: int = 0) -> None:
    """Wait until exactly that many deliveries are complete, and no more follow."""
    sent = bot.delivery
    assert sent is not None
    await until(lambda: len(hook.got) == count and sent.under_way == under_way)
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert len(hook.got) == count


async def test_updates_are_delivered_with_the_secret_and_in_order(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver
) -> None:
    first = fake.say(bot, "before the webhook")
    await call("setWebhook", url=hook.url, secret_token="s3cret-_A")
    for number in range(30):
        fake.say(bot, str(number))
    await until(lambda: not bot.waiting)
    assert hook.texts() == ["before the webhook", *map(str, range(30))]
    assert [update["update_id"] for update in hook.got] == list(range(first, first + 31))
    assert {one["x-telegram-bot-api-secret-token"] for one in hook.headers} == {"s3cret-_A"}
    assert {one["content-type"] for one in hook.headers} == {"application/json"}
    assert hook.max_parallel == 1
    assert bot.delivered == list(range(first, first + 31))


async def test_a_failure_delays_only_its_chat(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url=hook.url)
    for _ in range(5):
        hook.say(500)
    fake.say(bot, "fails", chat=1)
    # at once, then after 2, 4 and 8 seconds; nothing a moment before
    await quiet(bot, hook, 2)
    for count, pause_s in ((3, 2), (4, 4), (5, 8)):
        clock.advance(pause_s - 0.01)
        await quiet(bot, hook, count - 1)
        clock.advance(0.02)
        await quiet(bot, hook, count)
    fake.say(bot, "waits behind it", chat=1)
    fake.say(bot, "another chat", chat=2)
    await until(lambda: "another chat" in hook.texts())
    await until(lambda: len(bot.waiting) == 2)
    assert "waits behind it" not in hook.texts()
    info = await call("getWebhookInfo")
    assert info["pending_update_count"] == 2
    assert (
        info["last_error_message"] == "Wrong response from the webhook: 500 Internal Server Error"
    )
    clock.advance(16.1)
    await until(lambda: not bot.waiting)
    assert hook.texts()[-2:] == ["fails", "waits behind it"]


async def test_retry_delays_grow_to_one_or_two_minutes(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url=hook.url)
    for _ in range(12):
        hook.say(500)
    fake.say(bot, "fails")
    await quiet(bot, hook, 2)
    for count in range(3, 13):
        clock.advance(min(2.0 ** (count - 2), 120))
        await quiet(bot, hook, count)
    clock.advance(121)
    await until(lambda: not bot.waiting)


async def test_retry_after_is_obeyed_up_to_an_hour(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url=hook.url)
    hook.say(503, retry_after="5")
    hook.say(503, retry_after="99999")
    fake.say(bot, "later")
    await quiet(bot, hook, 1)
    clock.advance(4.9)
    await quiet(bot, hook, 1)
    clock.advance(0.2)
    await quiet(bot, hook, 2)
    clock.advance(3_599)
    await quiet(bot, hook, 2)
    clock.advance(2)
    await until(lambda: not bot.waiting)
    assert hook.texts() == ["later"] * 3


async def test_an_update_expires_after_a_day_a_query_after_minutes(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url=hook.url)
    fake.say(bot, "hi")
    await until(lambda: not bot.waiting)
    buttons = [[{"text": "Yes", "callback_data": "y"}]]
    sent = await call("sendMessage", chat_id=7, text="?", reply_markup={"inline_keyboard": buttons})
    await call("deleteWebhook")
    message, query = fake.say(bot, "unread"), fake.press(bot, sent["message_id"], "y")
    clock.advance(151)
    await call("setWebhook", url=hook.url)
    await until(lambda: message not in bot.waiting)
    await until(lambda: bot.expired == [query])
    for _ in range(2):
        hook.say(500, retry_after="3600")
    late = fake.say(bot, "dies")
    await quiet(bot, hook, 3)
    clock.advance(3_601)
    await quiet(bot, hook, 4)
    clock.advance(23 * 3_600)
    await until(lambda: late not in bot.waiting)
    assert bot.expired == [query, late]


async def test_max_connections_limits_parallel_deliveries(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver
) -> None:
    await call("setWebhook", url=hook.url, max_connections=3)
    hook.hold = asyncio.Event()
    for chat in range(1, 9):
        fake.say(bot, "hi", chat=chat)
    await quiet(bot, hook, 3, 3)
    hook.hold.set()
    await until(lambda: not bot.waiting)
    assert hook.max_parallel == 3


async def test_no_response_within_a_minute_is_a_failure(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url=hook.url)
    hook.hold = asyncio.Event()
    fake.say(bot, "hangs")
    await quiet(bot, hook, 1, 1)
    clock.advance(61)
    await until(lambda: len(hook.got) == 2)
    hook.hold.set()
    await until(lambda: not bot.waiting)
    assert (await call("getWebhookInfo"))["last_error_message"] == "Read timeout expired"


async def test_a_refused_connection_is_retried(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url="http://127.0.0.1:9/nobody")
    fake.say(bot, "hi")
    await until(lambda: bot.webhook is not None and bot.webhook.last_error != "")
    assert bot.webhook is not None
    assert bot.webhook.last_error == "Connection refused"
    clock.advance(2)
    await call("setWebhook", url=hook.url)
    await until(lambda: hook.texts() == ["hi"])


async def test_a_response_may_contain_one_method_call(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver
) -> None:
    await call("setWebhook", url=hook.url)
    hook.say(200, {"method": "sendMessage", "chat_id": 7, "text": "in the answer"})
    hook.say(200, {"method": "deleteWebhook"})
    hook.say(200, {"method": "sendMessage", "chat_id": 999, "text": "to a stranger"})
    for _ in range(3):
        fake.say(bot, "hi")
    await until(lambda: not bot.waiting)
    await until(lambda: bot.chat(7).texts() == ["in the answer"])
    (entry,) = bot.chat(7).received()
    assert entry.call is not None
    assert (entry.call.method, entry.call.way) == ("sendMessage", "webhook")
    assert bot.webhook is not None


async def test_410_for_a_day_removes_the_webhook(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call("setWebhook", url=hook.url)
    for _ in range(40):
        hook.say(410, retry_after="3600")
    fake.say(bot, "hi")
    for count in range(1, 24):
        await quiet(bot, hook, count)
        clock.advance(3_601)
    await until(lambda: bot.webhook is None)
    assert len(hook.got) == 24
    assert (await call("getWebhookInfo"))["url"] == ""


@pytest.mark.parametrize("kinds", [["callback_query"], []])
async def test_only_allowed_kinds_are_delivered(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, kinds: list[str]
) -> None:
    await call("setWebhook", url=hook.url, allowed_updates=kinds)
    update = fake.say(bot, "hi")
    assert (update == 0) == bool(kinds)
    assert fake.react(bot, 1, "👍") == 0
