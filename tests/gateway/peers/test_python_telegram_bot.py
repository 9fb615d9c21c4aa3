"""python-telegram-bot: its client, its parser, its polling and its webhook receiver."""

import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, Update, error
from telegram.ext import Application, ApplicationBuilder, CommandHandler, MessageHandler, filters

from telegram_gateway.fake import FakeBot, FakeTelegram, Fault
from telegram_gateway.fake.faults import Trouble
from tests.gateway.fake_api import until
from tests.gateway.peers.conftest import SECRET, TOKEN
from tests.gateway.peers.every_kind import every_kind


@pytest.fixture
async def client(fake: FakeTelegram, bot: FakeBot) -> AsyncIterator[Bot]:
    made = Bot(TOKEN, base_url=f"{fake.base}/bot", base_file_url=f"{fake.base}/file/bot")
    async with made:
        yield made


@pytest.fixture
async def application(fake: FakeTelegram, bot: FakeBot) -> AsyncIterator[Any]:
    async def start(update: Update, context: Any) -> None:
        assert update.message is not None
        await update.message.reply_text("welcome")

    async def echo(update: Update, context: Any) -> None:
        assert update.message is not None
        await update.message.reply_text(update.message.text or "")

    builder = ApplicationBuilder().token(TOKEN).base_url(f"{fake.base}/bot")
    made: Application[Any, Any, Any, Any, Any, Any] = builder.build()
    made.add_handler(CommandHandler("start", start))
    made.add_handler(MessageHandler(filters.TEXT, echo))
    async with made:
        await made.start()
        yield made
        if made.updater is not None and made.updater.running:
            await made.updater.stop()
        await made.stop()


async def test_its_client(fake: FakeTelegram, bot: FakeBot, client: Bot) -> None:
    assert client.username == "echo_bot"
    fake.say(bot, "hi", chat=7)
    keys = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y")]])
    sent = await client.send_message(7, "größer & mehr", reply_markup=keys)
    assert (sent.text, sent.chat.id, sent.reply_markup) == ("größer & mehr", 7, keys)
    edited = await client.edit_message_text("other", 7, sent.message_id)
    assert edited is not True
    assert edited.text == "other"
    assert await client.send_chat_action(7, "typing") is True
    assert (await client.get_chat(7)).first_name == "Ann"
    assert await client.delete_message(7, sent.message_id) is True
    url = f"{fake.base}/nowhere"
    assert await client.set_webhook(url, certificate=b"certificate", max_connections=3) is True
    info = await client.get_webhook_info()
    assert (info.url, info.max_connections) == (url, 3)
    with pytest.raises(error.Conflict):
        await client.get_updates()
    assert await client.delete_webhook() is True


async def test_its_errors(
    fake: FakeTelegram, bot: FakeBot, client: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")
    fake.say(bot, "hi", chat=7)
    fake.faults.append(Fault(trouble=Trouble.FLOOD, seconds=35))
    with pytest.raises(error.RetryAfter) as flood:
        await client.send_message(7, "x")
    assert flood.value.retry_after == timedelta(seconds=35)
    fake.faults.append(Fault(trouble=Trouble.MOVED, chat=-100_777))
    with pytest.raises(error.ChatMigrated) as moved:
        await client.send_message(7, "x")
    assert moved.value.new_chat_id == -100_777
    fake.faults.append(Fault(trouble=Trouble.BROKEN))
    with pytest.raises(error.NetworkError):
        await client.send_message(7, "x")
    with pytest.raises(error.BadRequest):
        await client.send_message(999, "to a stranger")
    assert bot.chat(7).texts() == []
    fake.faults.append(Fault(trouble=Trouble.LOST))
    with pytest.raises(error.NetworkError):
        await client.send_message(7, "lost")
    assert bot.chat(7).texts() == ["lost"]
    fake.block(bot)
    with pytest.raises(error.Forbidden):
        await client.send_message(7, "x")
    bot.revoked = True
    with pytest.raises(error.InvalidToken):
        await client.get_me()


async def test_its_parser_reads_every_kind(fake: FakeTelegram, bot: FakeBot, client: Bot) -> None:
    for update in await every_kind(fake, bot):
        read = Update.de_json(update, client)
        (kind,) = update.keys() - {"update_id"}
        assert read.update_id == update["update_id"]
        assert getattr(read, kind) is not None
        assert not getattr(read, kind).api_kwargs


async def test_its_polling(fake: FakeTelegram, bot: FakeBot, application: Any) -> None:
    await application.updater.start_polling()
    fake.say(bot, "/start")
    fake.say(bot, "one")
    await until(lambda: bot.chat(7).texts() == ["welcome", "one"])
    await until(lambda: not bot.waiting)


async def test_its_webhook_accepts_our_deliveries(
    fake: FakeTelegram, bot: FakeBot, application: Any
) -> None:
    # "unix" takes any socket that listens, so that nobody else can take its port
    place = socket.create_server(("127.0.0.1", 0))
    place.setblocking(False)
    await application.updater.start_webhook(
        unix=place,
        url_path="hook",
        webhook_url=f"http://127.0.0.1:{place.getsockname()[1]}/hook",
        secret_token=SECRET,
    )
    fake.say(bot, "/start")
    fake.say(bot, "two", chat=8)
    await until(lambda: not bot.waiting)
    await until(lambda: bot.chat(7).texts() == ["welcome"] and bot.chat(8).texts() == ["two"])
    assert bot.webhook is not None
    assert bot.webhook.last_error == ""
    bot.webhook.secret = "another"
    fake.say(bot, "refused")
    await until(lambda: "403" in (bot.webhook.last_error if bot.webhook else ""))
