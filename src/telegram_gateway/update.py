"""An update: Telegram's bytes as they came, and the few facts the gateway reads in them.

Unknown fields and unknown kinds are always accepted. Only bytes without a whole ``update_id`` are
no update.
"""

import base64
from typing import Any, Final, cast

import msgspec

DAY_S: Final = 86_400
_MESSAGES: Final = (
    "message", "edited_message", "channel_post", "edited_channel_post", "business_message",
    "edited_business_message",
)  # fmt: skip
_LIVES_S: Final = {
    "callback_query": 150,
    "shipping_query": 150,
    "pre_checkout_query": 150,
    "chosen_inline_result": 600,
    "inline_query": 30,
}


_DECODE: Final = msgspec.json.Decoder().decode


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One update. ``chat_id`` and ``user_id`` are None where the kind has none."""

    raw: bytes
    id: int
    kind: str = "unknown"
    chat_id: int | None = None
    chat_type: str = ""
    user_id: int | None = None
    text: str | None = None
    message_id: int | None = None
    thread_id: int | None = None
    date: int | None = None

    @property
    def words(self) -> list[str]:
        """The text in words; a command comes first, without the name of the bot."""
        words = (self.text or "").split()
        if words and words[0].startswith("/"):
            words[0] = words[0].partition("@")[0]
        return words

    @property
    def life_s(self) -> int:
        """For how many seconds an answer is of use."""
        return _LIVES_S.get(self.kind, DAY_S)

    @property
    def lane(self) -> str | None:
        """Whose order it belongs to: its chat, else its user."""
        if self.chat_id is not None:
            return f"chat:{self.chat_id}"
        return None if self.user_id is None else f"user:{self.user_id}"

    def packed(self) -> str:
        """The bytes as text that JSON can hold."""
        return base64.b64encode(self.raw).decode("ascii")


def unpacked(text: str) -> Update:
    """The update that ``packed`` gave."""
    return read_update(base64.b64decode(text))


def read_update(raw: bytes) -> Update:
    """The update in these bytes; ValueError when there is none."""
    try:
        whole: Any = _DECODE(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("no JSON") from error
    if type(whole) is not dict:
        raise ValueError("no JSON object")
    fields = cast("dict[str, Any]", whole)
    number: Any = fields.get("update_id")
    if type(number) is not int:
        raise ValueError("no JSON object with a whole update_id")
    kind, part = _part(fields)
    chat = _inner(part, "chat")
    message = part if kind in _MESSAGES else _inner(part, "message")
    if not chat:
        chat = _inner(message, "chat")
    user = _inner(part, "from") or _inner(part, "user")
    return Update(
        raw=raw,
        id=number,
        kind=kind,
        chat_id=_whole(chat.get("id")),
        chat_type=str(chat.get("type", "")),
        user_id=_whole(user.get("id")),
        text=_text(part.get("text")) or _text(part.get("caption")) or _text(part.get("data")),
        message_id=_whole(message.get("message_id")),
        thread_id=_whole(message.get("message_thread_id")),
        date=_whole(part.get("edit_date")) or _whole(part.get("date")),
    )


def _part(whole: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for name, value in whole.items():
        if name != "update_id" and isinstance(value, dict):
            return name, value  # pyright: ignore[reportUnknownVariableType]
    return "unknown", {}


def _inner(part: dict[str, Any], name: str) -> dict[str, Any]:
    value = part.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
