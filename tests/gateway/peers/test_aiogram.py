"""aiogram: its client, its parser, its polling and its webhook receiver."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiogram import Bot, Dispatcher, exceptions, types
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.filters import CommandStart
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

from telegram_gateway.calls import ALLOWED_METHODS
from telegram_gateway.fake import FakeBot, FakeTelegram, Fault
from telegram_gateway.fake.faults import Trouble
from tests.gateway.fake_api import until
from tests.gateway.peers.conftest import SECRET, TOKEN
from tests.gateway.peers.every_kind import every_kind


@pytest.fixture
async def client(fake: FakeTelegram, bot: FakeBot) -> AsyncIterator[Bot]:
    made = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(fake.base)))
    yield made
    await made.session.close()


def echoing() -> Dispatcher:
    dispatcher = Dispatcher()

    @dispatcher.message(CommandStart())
    async def start(message: types.Message) -> None:
        await message.answer("welcome")

    @dispatcher.message()
    async def echo(message: types.Message) -> None:
        await message.answer(message.text or "")

    return dispatcher


async def test_its_client(fake: FakeTelegram, bot: FakeBot, client: Bot) -> None:
    assert (await client.get_me()).username == "echo_bot"
    fake.say(bot, "hi", chat=7)
    keys = types.InlineKeyboardMarkup(
        inline_keyboard=[[types.InlineKeyboardButton(text="Yes", callback_data="y")]]
    )
    sent = await client.send_message(7, "größer & mehr", reply_markup=keys)
    assert (sent.text, sent.chat.id) == ("größer & mehr", 7)
    assert sent.reply_markup is not None
    assert sent.reply_markup.model_dump() == keys.model_dump()
    edited = await client.edit_message_text("other", chat_id=7, message_id=sent.message_id)
    assert isinstance(edited, types.Message)
    assert edited.text == "other"
    assert await client.send_chat_action(7, "typing") is True
    assert (await client.get_chat(7)).first_name == "Ann"
    assert await client.delete_message(7, sent.message_id) is True
    file = types.BufferedInputFile(b"certificate", "cert.pem")
    assert await client.set_webhook(f"{fake.base}/nowhere", certificate=file) is True
    assert (await client.get_webhook_info()).url == f"{fake.base}/nowhere"
    with pytest.raises(exceptions.TelegramConflictError):
        await client.get_updates()
    assert await client.delete_webhook() is True


async def test_its_errors(fake: FakeTelegram, bot: FakeBot, client: Bot) -> None:
    fake.say(bot, "hi", chat=7)
    fake.faults.append(Fault(trouble=Trouble.FLOOD, seconds=35))
    with pytest.raises(exceptions.TelegramRetryAfter) as flood:
        await client.send_message(7, "x")
    assert flood.value.retry_after == 35
    fake.faults.append(Fault(trouble=Trouble.MOVED, chat=-100_777))
    with pytest.raises(exceptions.TelegramMigrateToChat) as moved:
        await client.send_message(7, "x")
    assert moved.value.migrate_to_chat_id == -100_777
    fake.faults.append(Fault(trouble=Trouble.BROKEN))
    with pytest.raises(exceptions.TelegramServerError):
        await client.send_message(7, "x")
    with pytest.raises(exceptions.TelegramBadRequest):
        await client.send_message(999, "to a stranger")
    assert bot.chat(7).texts() == []
    fake.faults.append(Fault(trouble=Trouble.LOST))
    with pytest.raises(exceptions.TelegramNetworkError):
        await client.send_message(7, "lost")
    assert bot.chat(7).texts() == ["lost"]
    fake.block(bot)
    with pytest.raises(exceptions.TelegramForbiddenError):
        await client.send_message(7, "x")
    bot.revoked = True
    with pytest.raises(exceptions.TelegramUnauthorizedError):
        await client.get_me()


async def test_its_parser_reads_every_kind(fake: FakeTelegram, bot: FakeBot) -> None:
    for update in await every_kind(fake, bot):
        read = types.Update.model_validate(update)
        assert read.event_type in update
        back = read.model_dump(mode="json", exclude_none=True, by_alias=True)
        assert back["update_id"] == update["update_id"]


async def test_its_polling(fake: FakeTelegram, bot: FakeBot, client: Bot) -> None:
    dispatcher = echoing()
    polling = asyncio.create_task(
        dispatcher.start_polling(client, handle_signals=False, close_bot_session=False)
    )
    fake.say(bot, "/start")
    fake.say(bot, "one")
    await until(lambda: bot.chat(7).texts() == ["welcome", "one"])
    await until(lambda: not bot.waiting)
    await dispatcher.stop_polling()
    await polling


async def test_its_webhook_accepts_our_deliveries(
    fake: FakeTelegram, bot: FakeBot, client: Bot
) -> None:
    application = web.Application()
    # in the background it answers before it handles; here the answer carries the call
    handler = SimpleRequestHandler(
        echoing(), client, handle_in_background=False, secret_token=SECRET
    )
    handler.register(application, path="/hook")
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        await client.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token=SECRET)
        fake.say(bot, "/start")
        fake.say(bot, "two", chat=8)
        await until(lambda: not bot.waiting)
        await until(lambda: bot.chat(7).texts() == ["welcome"])
        await until(lambda: bot.chat(8).texts() == ["two"])
        assert bot.webhook is not None
        assert bot.webhook.last_error == ""
        bot.webhook.secret = "another"
        fake.say(bot, "refused")
        await until(lambda: "401" in (bot.webhook.last_error if bot.webhook else ""))
    finally:
        await runner.cleanup()


async def test_g11a_its_client_sends_every_kind_of_message(
    fake: FakeTelegram, bot: FakeBot, client: Bot
) -> None:
    fake.say(bot, "hi", chat=7)
    file = types.BufferedInputFile(b"\x89PNG", "a.png")
    sent = [
        await client.send_photo(7, file, caption="größer"),
        await client.send_audio(7, "file-id"),
        await client.send_document(7, file),
        await client.send_video(7, "https://example.org/a.mp4"),
        await client.send_animation(7, file),
        await client.send_voice(7, file),
        await client.send_video_note(7, file),
        await client.send_sticker(7, "file-id"),
        await client.send_location(7, 50.1, 8.7),
        await client.send_venue(7, 50.1, 8.7, "Zeil", "Frankfurt"),
        await client.send_contact(7, "+49123", "Ann"),
        await client.send_poll(7, "Which?", [types.InputPollOption(text="A"), "B"]),
        await client.send_dice(7),
        *await client.send_media_group(
            7, [types.InputMediaPhoto(media=file), types.InputMediaVideo(media="id", caption="c")]
        ),
    ]
    assert [message.content_type for message in sent] == [
        "photo", "audio", "document", "video", "animation", "voice", "video_note", "sticker",
        "location", "venue", "contact", "poll", "dice", "photo", "video",
    ]  # fmt: skip
    assert sent[0].caption == "größer"
    edited = await client.edit_message_caption(
        chat_id=7, message_id=sent[0].message_id, caption="other"
    )
    assert isinstance(edited, types.Message)
    assert edited.caption == "other"
    assert await client.answer_inline_query("1", []) is True
    assert await client.answer_shipping_query("1", ok=False, error_message="no") is True
    assert await client.answer_pre_checkout_query("1", ok=True) is True
    for refused in (
        client.send_photo(7, file, caption="x" * 1_025),
        client.send_dice(7, emoji="🥝"),
        client.edit_message_caption(chat_id=7, message_id=sent[8].message_id, caption="x"),
    ):
        with pytest.raises(exceptions.TelegramBadRequest):
            await refused


def test_g11a_the_fake_knows_every_method_that_handlers_may_call(fake: FakeTelegram) -> None:
    assert {method.lower() for method in ALLOWED_METHODS} <= set(fake.methods)
