"""One update of every kind that the fake Telegram makes, as bots receive it."""

from typing import Any

from telegram_gateway.fake import FakeBot, FakeTelegram
from telegram_gateway.fake.call_parameters import CallParameters

KINDS = {
    "message", "edited_message", "channel_post", "callback_query", "inline_query",
    "my_chat_member", "message_reaction",
}  # fmt: skip


async def every_kind(fake: FakeTelegram, bot: FakeBot) -> list[dict[str, Any]]:
    """Includes texts, commands, groups, topics, files and locations."""
    bot.allowed = frozenset(KINDS)
    fake.say(bot, "/start now", chat=7)
    fake.say(bot, "😀 /help@echo_bot", chat=-5, user=8)
    fake.say(bot, "in a topic", chat=-1_001_234, message_thread_id=3, is_topic_message=True)
    fake.say(bot, "", location={"latitude": 48.2, "longitude": 16.4})
    size = {"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 81}
    fake.say(bot, "", photo=[size], caption="a picture")
    fake.edit(bot, 1, "/start later")
    fake.post(bot, "news")
    rows = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    asked = CallParameters({"chat_id": 7, "text": "?", "reply_markup": rows})
    sent = await fake.perform(bot, "sendMessage", asked)
    fake.press(bot, sent["message_id"], "y")
    fake.ask_inline(bot, "cats")
    fake.react(bot, 1, "👍")
    fake.block(bot)
    fake.block(bot, blocked=False)
    found = [update.as_dict for update in bot.waiting.values()]
    assert {kind for update in found for kind in update} - {"update_id"} == KINDS
    return found
