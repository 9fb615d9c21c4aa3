"""The methods over HTTP: their results and refusals match the real ones."""

import asyncio
import json

import httpx2
import pytest

from forge_jobs.testing.clock import MovableClock
from telegram_gateway.fake import FakeBot, FakeTelegram, Fault, fake_telegram
from telegram_gateway.fake.faults import Trouble
from tests.gateway.fake.conftest import TOKEN, Caller
from tests.gateway.fake.receiver import Receiver
from tests.gateway.fake_api import until


async def test_a_chat_entry_contains_its_request(
    fake: FakeTelegram, bot: FakeBot, call: Caller
) -> None:
    assert (await call("getMe"))["username"] == "echo_bot"
    fake.say(bot, "hi", chat=7)
    sent = await call("sendMessage", chat_id=7, text="hello")
    assert sent["chat"] == {"id": 7, "type": "private", "first_name": "Ann"}
    await call("sendChatAction", chat_id="7", action="typing")
    await call("editMessageText", chat_id=7, message_id=sent["message_id"], text="hello, Ann")
    await call("deleteMessage", chat_id=7, message_id=1)
    chat = bot.chat(7)
    assert [(one.by, one.what) for one in chat.entries] == [
        ("user", "message"),
        ("bot", "message"),
        ("bot", "action"),
        ("bot", "edit"),
        ("bot", "delete"),
    ]
    assert chat.texts() == ["hello"]
    first = chat.received()[0]
    assert first.call is not None
    assert first.call.parameters == {"chat_id": 7, "text": "hello"}
    assert chat.messages[sent["message_id"]]["text"] == "hello, Ann"


async def test_buttons(fake: FakeTelegram, bot: FakeBot, call: Caller, clock: MovableClock) -> None:
    fake.say(bot, "hi")
    rows = [[{"text": "Yes", "callback_data": "y"}]]
    sent = await call("sendMessage", chat_id=7, text="?", reply_markup={"inline_keyboard": rows})
    with pytest.raises(Exception, match="no such button"):
        fake.press(bot, sent["message_id"], "n")
    fake.press(bot, sent["message_id"], "y")
    (_, update) = await call("getUpdates")
    query = update["callback_query"]
    assert query["data"] == "y"
    assert await call("answerCallbackQuery", callback_query_id=query["id"], text="ok") is True
    assert (await call.refused("answerCallbackQuery", callback_query_id=query["id"]))[0] == 400


async def test_refusals(fake: FakeTelegram, bot: FakeBot, call: Caller) -> None:
    fake.say(bot, "hi")
    assert (await call.refused("sendMessage", chat_id=8, text="stranger"))[0] == 400
    assert (await call.refused("sendMessage", chat_id=7, text="  "))[0] == 400
    assert (await call.refused("sendMessage", chat_id=7, text="x" * 4_097))[0] == 400
    assert (await call.refused("sendMessage", chat_id=7, text="😀" * 2_049))[0] == 400
    assert (await call.refused("sendMessage", text="nobody"))[0] == 400
    assert (await call.refused("sendMessage", chat_id=7, text="x", reply_markup="{"))[0] == 400
    assert (await call.refused("editMessageText", chat_id=7, message_id=1, text="x"))[0] == 400
    assert (await call.refused("deleteMessage", chat_id=7, message_id=99))[0] == 400
    assert (await call.refused("launchRocket"))[0] == 404
    sent = await call("sendMessage", chat_id=7, text="x" * 4_096)
    same = {"chat_id": 7, "message_id": sent["message_id"], "text": "x" * 4_096}
    assert (await call.refused("editMessageText", **same))[0] == 400
    fake.block(bot, chat=7)
    assert (await call.refused("sendMessage", chat_id=7, text="blocked"))[0] == 403
    bot.revoked = True
    assert (await call.refused("getMe"))[0] == 401


async def test_all_four_formats_of_parameters(
    fake: FakeTelegram, bot: FakeBot, client: httpx2.AsyncClient
) -> None:
    fake.say(bot, "hi")
    url = f"{fake.base}/bot{TOKEN}/SENDmessage"
    keys = json.dumps({"inline_keyboard": [[{"text": "a", "callback_data": "a"}]]})
    said = {"chat_id": "7", "text": "größe & more", "reply_markup": keys}
    answers = [
        await client.get(url, params=said),
        await client.post(url, data=said),
        await client.post(url, json=said),
        await client.post(url, data=said, files={"document": ("a.txt", b"abc")}),
    ]
    assert [answer.json()["result"]["text"] for answer in answers] == ["größe & more"] * 4
    assert all("reply_markup" in answer.json()["result"] for answer in answers)


async def test_unknown_tokens(client: httpx2.AsyncClient) -> None:
    async with fake_telegram(known_only=True) as fake:
        fake.bot(TOKEN)
        other = TOKEN.replace("4711", "4712")
        changed = TOKEN[:-1] + "x"
        strange = ("nonsense", "1" * 5_000 + TOKEN[4:])
        for token, status in ((TOKEN, 200), *((one, 401) for one in (other, changed, *strange))):
            assert (await client.get(f"{fake.base}/bot{token}/getMe")).status_code == status
        assert (await client.get(f"{fake.base}/elsewhere")).status_code == 404


async def test_updates_are_fetched_until_confirmed(
    fake: FakeTelegram, bot: FakeBot, call: Caller, clock: MovableClock
) -> None:
    first = fake.say(bot, "one")
    fake.say(bot, "two")
    fake.say(bot, "three")
    assert len(await call("getUpdates")) == 3
    assert len(await call("getUpdates", limit=2)) == 2
    (last,) = await call("getUpdates", offset=first + 2)
    assert last["message"]["text"] == "three"
    assert await call("getUpdates", offset=first + 3) == []
    waiting = asyncio.create_task(call("getUpdates", offset=first + 3, timeout=50))
    await until(lambda: bot.poller is not None)
    fake.say(bot, "four")
    assert (await waiting)[0]["message"]["text"] == "four"
    clock.advance(86_401)
    assert await call("getUpdates") == []


async def test_webhook_and_get_updates_exclude_each_other(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    first = asyncio.create_task(call.ask("getUpdates", timeout=50))
    await until(lambda: bot.poller is not None)
    before = bot.poller
    second = asyncio.create_task(call.ask("getUpdates", timeout=50))
    assert (await first)["error_code"] == 409
    await until(lambda: bot.poller not in (None, before))
    await call("setWebhook", url=hook.url)
    assert (await second)["error_code"] == 409
    assert (await call.refused("getUpdates"))[0] == 409
    assert await call.refused("setWebhook", url=hook.url) == (429, {"retry_after": 1})
    await call("deleteWebhook")
    assert await call("getUpdates") == []


async def test_set_webhook_replaces_all_settings(
    fake: FakeTelegram, bot: FakeBot, call: Caller, hook: Receiver, clock: MovableClock
) -> None:
    await call(
        "setWebhook",
        url=hook.url,
        secret_token="abc",
        max_connections=5,
        allowed_updates=["message", "nonsense", {}],
    )
    clock.advance(2)
    await call("setWebhook", url=hook.url)
    info = await call("getWebhookInfo")
    assert (info["max_connections"], info["allowed_updates"]) == (40, ["message"])
    fake.say(bot, "hi")
    await until(lambda: not bot.waiting)
    assert "x-telegram-bot-api-secret-token" not in hook.headers[0]
    clock.advance(2)
    assert (await call.refused("setWebhook", url=hook.url, secret_token="no blanks"))[0] == 400
    assert (await call.refused("setWebhook", url="ftp://x"))[0] == 400
    await call("deleteWebhook")
    fake.say(bot, "kept")
    await call("setWebhook", url=hook.url, drop_pending_updates=True)
    await call("deleteWebhook")
    assert not bot.waiting


async def test_a_public_server_requires_https(client: httpx2.AsyncClient) -> None:
    async with fake_telegram(local=False) as fake:
        fake.bot(TOKEN)
        call = Caller(fake, client)
        assert (await call.refused("setWebhook", url="http://tg.example/x"))[0] == 400
        assert (await call.refused("setWebhook", url="https://tg.example:9000/x"))[0] == 400
        await call("setWebhook", url="https://127.0.0.1:8443/x", max_connections=5_000)
        assert (await call("getWebhookInfo"))["max_connections"] == 100


async def test_injected_errors(
    fake: FakeTelegram, bot: FakeBot, call: Caller, clock: MovableClock
) -> None:
    fake.say(bot, "hi")
    fake.faults += [
        Fault(trouble=Trouble.FLOOD, method="sendMessage", seconds=35),
        Fault(trouble=Trouble.BROKEN, method="sendMessage", times=2),
        Fault(trouble=Trouble.MOVED, method="sendMessage", chat=-100_123),
    ]
    said = {"chat_id": 7, "text": "hello"}
    assert await call.refused("sendMessage", **said) == (429, {"retry_after": 35})
    assert (await call.refused("sendMessage", **said))[0] == 502
    assert (await call.refused("sendMessage", **said))[0] == 502
    assert await call.refused("sendMessage", **said) == (400, {"migrate_to_chat_id": -100_123})
    assert bot.chat(7).texts() == []
    fake.faults.append(Fault(trouble=Trouble.LOST, bot_id=bot.id))
    with pytest.raises(httpx2.RemoteProtocolError):
        await call.ask("sendMessage", **said)
    assert bot.chat(7).texts() == ["hello"]
    fake.faults.append(Fault(trouble=Trouble.HANG, seconds=30))
    hanging = asyncio.create_task(call.ask("sendMessage", **said))
    await until(lambda: not fake.faults)
    await asyncio.sleep(0.05)
    clock.advance(31)
    with pytest.raises(httpx2.RemoteProtocolError):
        await hanging
    assert bot.chat(7).texts() == ["hello"]
