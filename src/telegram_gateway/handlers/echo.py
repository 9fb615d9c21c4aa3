"""The echo handler: sends the same text to the same chat and topic."""

from telegram_gateway.calls import Call, reply, truncate_text
from telegram_gateway.update import Update


class Echo:
    """Replies to text messages only; edits, stickers and reactions get no reply."""

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        if update.kind != "message" or update.text is None:
            return []
        answer = reply(update, truncate_text(update.text))
        return [] if answer is None else [answer]

    async def close(self) -> None:
        return
