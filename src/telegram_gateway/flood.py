"""Telegram's limits for sending: per chat, per group and per bot, shared by all processes.

They keep a bot below the rate at which Telegram answers 429; a 429 is obeyed all the same. The
limit of a bot is a rate limit of forge_jobs, which operators see and change. There are too many
chats for that, so their limits are rows in the gateway's own tables (``storage``).
"""

from dataclasses import dataclass
from typing import Final

_SECOND: Final = 1_000_000
BOT_RATE: Final = "30/s"


@dataclass(frozen=True, slots=True)
class SendLimit:
    """A rate limit (GCRA): ``burst`` messages at once, then one every ``every_us`` microseconds."""

    key: str
    every_us: int
    burst: int

    def after_send(self, level: int | None, now: int) -> tuple[int, int]:
        """The new level after a message is sent now, and the microseconds it has to wait before.

        A level is the instant at which the full burst is available again.
        """
        # A level further in the future than an empty bucket was written with a wrong clock.
        base = min(max(level or now, now), now + self.burst * self.every_us)
        return base + self.every_us, max(base - now - (self.burst - 1) * self.every_us, 0)


def scope_of(slug: str) -> str:
    """The name of the rate limit that all sends of a bot share."""
    return f"telegram.{slug}"


def chat_limits(bot_id: str, chat_id: int | str | None) -> list[SendLimit]:
    """The limits that apply to a message to this chat."""
    if chat_id is None:
        return []
    found = [SendLimit(f"chat:{bot_id}:{chat_id}", _SECOND, 3)]
    if str(chat_id).startswith(("-", "@")):
        found.append(SendLimit(f"group:{bot_id}:{chat_id}", 3 * _SECOND, 20))
    return found


def bot_limit(bot_id: str) -> SendLimit:
    """The limit of the bot for inline sends, which are not jobs."""
    return SendLimit(f"bot:{bot_id}", _SECOND // 30, 30)
