"""The echo handler: sends the same text to the same chat and topic."""

from telegram_gateway.calls import Call, message, truncate_text
from telegram_gateway.update import Update


class Echo:
    """Replies to text messages only; edits, stickers and reactions get no reply."""

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        if update.kind != "message" or update.text is None or update.chat_id is None:
            return []
        return [message(update.chat_id, truncate_text(update.text), thread_id=update.thread_id)]

    async def close(self) -> None:
        return
