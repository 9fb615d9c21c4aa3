"""Updates that wait for their bot: in which lane they stand and how long they live."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

DAY_S: Final = 86_400
SECOND: Final = 1_000_000
# Kinds that a bot gets only if it names them.
UNASKED: Final = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
KINDS: Final = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "business_connection",
        "business_message", "edited_business_message", "deleted_business_messages",
        "message_reaction", "message_reaction_count", "inline_query", "chosen_inline_result",
        "callback_query", "shipping_query", "pre_checkout_query", "purchased_paid_media", "poll",
        "poll_answer", "my_chat_member", "chat_member", "chat_join_request", "chat_boost",
        "removed_chat_boost",
    }
)  # fmt: skip
_LIVES_S: Final = {
    "callback_query": 150,
    "shipping_query": 150,
    "pre_checkout_query": 150,
    "chosen_inline_result": 600,
    "inline_query": 30,
}
_OF_CHATS: Final = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "business_message",
        "edited_business_message", "deleted_business_messages",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waiting:
    """One update. ``expires`` is in microseconds of the wall clock."""

    id: int
    kind: str
    body: dict[str, Any]
    lane: str
    expires: int

    @property
    def whole(self) -> dict[str, Any]:
        """As bots see it."""
        return {"update_id": self.id, self.kind: self.body}

    def encoded(self) -> bytes:
        """As it goes over the wire."""
        return msgspec.json.encode(self.whole)


def new_update(number: int, kind: str, body: dict[str, Any], now: int) -> Waiting:
    """An update made now."""
    return Waiting(number, kind, body, lane_of(kind, body), now + life_s(kind) * SECOND)


def life_s(kind: str) -> int:
    """How long Telegram keeps it."""
    return _LIVES_S.get(kind, DAY_S)


def lane_of(kind: str, body: dict[str, Any]) -> str:
    """Updates of one lane are delivered one at a time, in order; lanes do not wait for others."""
    if kind in _OF_CHATS:
        return f"chat:{body['chat']['id']}"
    person: dict[str, Any] = body.get("from") or body.get("user") or {}
    if "id" in person:
        return f"{kind}:user:{person['id']}"
    chat: dict[str, Any] = body.get("chat") or {}
    return f"{kind}:chat:{chat['id']}" if "id" in chat else kind


def chosen_kinds(named: Any, before: frozenset[str] | None) -> frozenset[str] | None:
    """What ``allowed_updates`` leads to; None stands for the default."""
    if named is None:
        return before
    known = frozenset(kind for kind in named if isinstance(kind, str) and kind in KINDS)
    return known or None


def is_wanted(kind: str, allowed: frozenset[str] | None) -> bool:
    """Whether a bot gets updates of this kind."""
    return kind not in UNASKED if allowed is None else kind in allowed
