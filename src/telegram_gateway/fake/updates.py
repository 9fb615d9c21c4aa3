"""Pending updates: their lane, expiry and encoding."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

DAY_S: Final = 86_400
SECOND: Final = 1_000_000
# Kinds that a bot receives only if it lists them in allowed_updates.
OPT_IN_KINDS: Final = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
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
_LIFETIMES_S: Final = {
    "callback_query": 150,
    "shipping_query": 150,
    "pre_checkout_query": 150,
    "chosen_inline_result": 600,
    "inline_query": 30,
}
_CHAT_KINDS: Final = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "business_message",
        "edited_business_message", "deleted_business_messages",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """One update. ``expires`` is in microseconds of the wall clock."""

    id: int
    kind: str
    body: dict[str, Any]
    lane: str
    expires: int

    @property
    def as_dict(self) -> dict[str, Any]:
        """The update as the Bot API represents it."""
        return {"update_id": self.id, self.kind: self.body}

    def encoded(self) -> bytes:
        """The update as JSON."""
        return msgspec.json.encode(self.as_dict)


def new_update(number: int, kind: str, body: dict[str, Any], now: int) -> PendingUpdate:
    """Create an update at the instant ``now``."""
    return PendingUpdate(number, kind, body, lane_of(kind, body), now + lifetime_s(kind) * SECOND)


def lifetime_s(kind: str) -> int:
    """How long Telegram keeps an update of this kind."""
    return _LIFETIMES_S.get(kind, DAY_S)


def lane_of(kind: str, body: dict[str, Any]) -> str:
    """The lane of an update: deliveries of one lane are sequential, lanes are independent."""
    if kind in _CHAT_KINDS:
        return f"chat:{body['chat']['id']}"
    person: dict[str, Any] = body.get("from") or body.get("user") or {}
    if "id" in person:
        return f"{kind}:user:{person['id']}"
    chat: dict[str, Any] = body.get("chat") or {}
    return f"{kind}:chat:{chat['id']}" if "id" in chat else kind


def selected_kinds(named: Any, before: frozenset[str] | None) -> frozenset[str] | None:
    """The kinds that ``allowed_updates`` selects; None is the default."""
    if named is None:
        return before
    known = frozenset(kind for kind in named if isinstance(kind, str) and kind in KINDS)
    return known or None


def is_wanted(kind: str, allowed: frozenset[str] | None) -> bool:
    """Whether a bot receives updates of this kind."""
    return kind not in OPT_IN_KINDS if allowed is None else kind in allowed
