"""Parses an update: Telegram's bytes unchanged, and the few fields that the gateway reads.

Unknown fields and unknown kinds are always accepted. Only bytes without an integer ``update_id``
are rejected.
"""

import base64
from typing import Any, Final, cast

import msgspec

DAY_S: Final = 86_400
_MESSAGES: Final = (
    "message", "edited_message", "channel_post", "edited_channel_post", "business_message",
    "edited_business_message",
)  # fmt: skip
_LIFETIMES_S: Final = {
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
    business_connection_id: str | None = None
    inline_message_id: str | None = None

    @property
    def words(self) -> list[str]:
        """The words of the text; a command comes first, without the name of the bot."""
        words = (self.text or "").split()
        if words and words[0].startswith("/"):
            words[0] = words[0].partition("@")[0]
        return words

    @property
    def lifetime_s(self) -> int:
        """For how many seconds a reply is useful: after that the update is given up."""
        return _LIFETIMES_S.get(self.kind, DAY_S)

    @property
    def label(self) -> str:
        """The update in log lines: ``update 12 (message, chat 7)``."""
        if self.chat_id is not None:
            return f"update {self.id} ({self.kind}, chat {self.chat_id})"
        user = "" if self.user_id is None else f", user {self.user_id}"
        return f"update {self.id} ({self.kind}{user})"

    @property
    def lane(self) -> str | None:
        """The ordering key: the chat, else the user."""
        if self.chat_id is not None:
            return f"chat:{self.chat_id}"
        return None if self.user_id is None else f"user:{self.user_id}"

    def to_base64(self) -> str:
        """The raw bytes as base64, for a JSON payload."""
        return base64.b64encode(self.raw).decode("ascii")


def update_from_base64(text: str) -> Update:
    """The update that ``to_base64`` encoded."""
    return read_update(base64.b64decode(text))


def read_update(raw: bytes) -> Update:
    """Parse an update. Raises ValueError if the bytes are not one."""
    try:
        decoded: Any = _DECODE(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("not JSON") from error
    if type(decoded) is not dict:
        raise ValueError("not a JSON object")
    fields = cast("dict[str, Any]", decoded)
    number: Any = fields.get("update_id")
    if type(number) is not int:
        raise ValueError("not a JSON object with an integer update_id")
    kind, part = _kind_and_body(fields)
    chat = _object_field(part, "chat")
    message = part if kind in _MESSAGES else _object_field(part, "message")
    if not chat:
        chat = _object_field(message, "chat")
    user = _object_field(part, "from") or _object_field(part, "user")
    return Update(
        raw=raw,
        id=number,
        kind=kind,
        chat_id=_int_or_none(chat.get("id")),
        chat_type=str(chat.get("type", "")),
        user_id=_int_or_none(user.get("id")),
        text=_text_or_none(part.get("text"))
        or _text_or_none(part.get("caption"))
        or _text_or_none(part.get("data")),
        message_id=_int_or_none(message.get("message_id")),
        # In groups without topics a thread is a chain of replies, which cannot be addressed.
        thread_id=_int_or_none(message.get("message_thread_id"))
        if message.get("is_topic_message") is True
        else None,
        business_connection_id=_text_or_none(message.get("business_connection_id")),
        inline_message_id=_text_or_none(part.get("inline_message_id")),
    )


def _kind_and_body(decoded: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for name, value in decoded.items():
        if name != "update_id" and isinstance(value, dict):
            return name, value  # pyright: ignore[reportUnknownVariableType]
    return "unknown", {}


def _object_field(part: dict[str, Any], name: str) -> dict[str, Any]:
    value = part.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _int_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
