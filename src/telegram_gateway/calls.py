"""Bot API calls that handlers may return, and text that fits into messages."""

from typing import Any, Final

import msgspec

MAX_TEXT: Final = 4_096
ALLOWED_METHODS: Final = frozenset(
    {
        "sendMessage", "sendPhoto", "sendAudio", "sendDocument", "sendVideo", "sendAnimation",
        "sendVoice", "sendVideoNote", "sendMediaGroup", "sendLocation", "sendVenue", "sendContact",
        "sendPoll", "sendDice", "sendSticker", "sendChatAction", "editMessageText",
        "editMessageCaption", "editMessageReplyMarkup", "answerCallbackQuery", "answerInlineQuery",
        "answerShippingQuery", "answerPreCheckoutQuery", "deleteMessage", "setMessageReaction",
    }
)  # fmt: skip


class Call(msgspec.Struct, frozen=True):
    """One method call with its parameters."""

    method: str
    parameters: dict[str, Any]

    @property
    def chat_id(self) -> int | str | None:
        """The chat it goes to."""
        found = self.parameters.get("chat_id")
        return found if isinstance(found, int | str) else None


def message(chat_id: int, text: str, *, thread_id: int | None = None) -> Call:
    """A sendMessage call with plain text; no markup is interpreted."""
    parameters: dict[str, Any] = {"chat_id": chat_id, "text": text}
    if thread_id is not None:
        parameters["message_thread_id"] = thread_id
    return Call("sendMessage", parameters)


def truncate_text(text: str) -> str:
    """Truncate to one message: Telegram counts UTF-16 code units."""
    if _utf16_length(text) <= MAX_TEXT:
        return text
    data = text.encode("utf-16-le", "surrogatepass")[: 2 * MAX_TEXT]
    return data.decode("utf-16-le", "ignore")


def split_text(text: str) -> list[str]:
    """Split a text into messages, at paragraphs, lines or words where possible."""
    pieces: list[str] = []
    while _utf16_length(text) > MAX_TEXT:
        head = truncate_text(text)
        for mark in ("\n\n", "\n", " "):
            at = head.rfind(mark)
            if at > 0:
                head = head[:at]
                break
        pieces.append(head)
        text = text[len(head) :].lstrip()
    return [*pieces, text] if text else pieces


def _utf16_length(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)
