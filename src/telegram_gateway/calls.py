"""Bot API calls that handlers may return, and text that fits into messages."""

from typing import Any, Final

import msgspec

from .update import Update

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


_BY_LOWER_NAME: Final = {method.lower(): method for method in ALLOWED_METHODS}


def allowed_method(name: str) -> str | None:
    """The method of this name, which may be in any case; None if handlers must not call it."""
    return _BY_LOWER_NAME.get(name.lower())


def message(chat_id: int, text: str) -> Call:
    """A sendMessage call with plain text; no markup is interpreted."""
    return Call("sendMessage", {"chat_id": chat_id, "text": text})


def reply(update: Update, text: str) -> Call | None:
    """A message to the chat of the update, in its topic and over its business connection; without
    a chat to its user. None if it has neither."""
    chat = update.chat_id if update.chat_id is not None else update.user_id
    return None if chat is None else addressed(message(chat, text), update)


def addressed(call: Call, update: Update) -> Call:
    """The call with the business connection and the topic of the update, where the method has such
    a parameter and the call does not set it."""
    parameters = dict(call.parameters)
    if update.business_connection_id is not None and call.method.startswith(("send", "editM")):
        parameters.setdefault("business_connection_id", update.business_connection_id)
    if update.thread_id is not None and call.method.startswith("send"):
        parameters.setdefault("message_thread_id", update.thread_id)
    return Call(call.method, parameters)


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
