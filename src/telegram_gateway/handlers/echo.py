"""The echo handler: the same text to the same chat and topic."""

from telegram_gateway.calls import Call, cut, message
from telegram_gateway.update import Update


class Echo:
    """Answers texts only; edits, stickers and reactions are taken in silence."""

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        if update.kind != "message" or update.text is None or update.chat_id is None:
            return []
        return [message(update.chat_id, cut(update.text), thread_id=update.thread_id)]

    async def close(self) -> None:
        return
