"""Calls of Bot API methods that handlers may ask for."""

from typing import Any, Final

import msgspec

TEXT_LONGEST: Final = 4_096
ALLOWED: Final = frozenset(
    {
        "sendMessage", "sendPhoto", "sendAudio", "sendDocument", "sendVideo", "sendAnimation",
        "sendVoice", "sendVideoNote", "sendMediaGroup", "sendLocation", "sendVenue", "sendContact",
        "sendPoll", "sendDice", "sendSticker", "sendChatAction", "editMessageText",
        "editMessageCaption", "editMessageReplyMarkup", "answerCallbackQuery", "answerInlineQuery",
        "answerShippingQuery", "answerPreCheckoutQuery", "deleteMessage", "setMessageReaction",
    }
)  # fmt: skip


class Call(msgspec.Struct, frozen=True):
    """One method with its parameters."""

    method: str
    parameters: dict[str, Any]

    @property
    def chat_id(self) -> int | str | None:
        """The chat it goes to."""
        found = self.parameters.get("chat_id")
        return found if isinstance(found, int | str) else None


def message(chat_id: int, text: str, *, thread_id: int | None = None) -> Call:
    """A plain text for a chat; markup is never interpreted."""
    parameters: dict[str, Any] = {"chat_id": chat_id, "text": text}
    if thread_id is not None:
        parameters["message_thread_id"] = thread_id
    return Call("sendMessage", parameters)


def cut(text: str) -> str:
    """The beginning that fits into one message, measured as Telegram measures."""
    if _units(text) <= TEXT_LONGEST:
        return text
    data = text.encode("utf-16-le", "surrogatepass")[: 2 * TEXT_LONGEST]
    return data.decode("utf-16-le", "ignore")


def split(text: str) -> list[str]:
    """The text in messages that fit, parted at paragraphs, lines or words where possible."""
    pieces: list[str] = []
    while _units(text) > TEXT_LONGEST:
        head = cut(text)
        for mark in ("\n\n", "\n", " "):
            at = head.rfind(mark)
            if at > 0:
                head = head[:at]
                break
        pieces.append(head)
        text = text[len(head) :].lstrip()
    return [*pieces, text] if text else pieces


def _units(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)
