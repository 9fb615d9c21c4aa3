"""Telegram's limits for sending: per chat, per group and per bot, counted over all processes.

They keep a bot from running into 429; when Telegram says 429 all the same, its word counts. The
limit of the whole bot is a rate limit of forge_jobs, which operators see and change; chats are too
many for that, so theirs are rows of the gateway's own (``storage``).
"""

from dataclasses import dataclass
from typing import Final

_SECOND: Final = 1_000_000
BOT_RATE: Final = "30/s"


@dataclass(frozen=True, slots=True)
class Allowance:
    """``burst`` messages at once, then one every ``every_us`` microseconds."""

    key: str
    every_us: int
    burst: int

    def after(self, level: int | None, now: int) -> tuple[int, int]:
        """The new level if a message goes now, and the microseconds it has to wait first.

        A level is the moment at which all of the allowance will be there again.
        """
        # A level further ahead than an empty allowance was written by a clock that was wrong.
        base = min(max(level or now, now), now + self.burst * self.every_us)
        return base + self.every_us, max(base - now - (self.burst - 1) * self.every_us, 0)


def scope_of(slug: str) -> str:
    """The rate limit that all sends of a bot share."""
    return f"telegram.{slug}"


def allowances(bot_id: str, chat_id: int | str | None) -> list[Allowance]:
    """What a message to this chat takes from."""
    if chat_id is None:
        return []
    found = [Allowance(f"chat:{bot_id}:{chat_id}", _SECOND, 3)]
    if str(chat_id).startswith(("-", "@")):
        found.append(Allowance(f"group:{bot_id}:{chat_id}", 3 * _SECOND, 20))
    return found


def whole_bot(bot_id: str) -> Allowance:
    """The limit of the bot, for sends at the door, which are no jobs."""
    return Allowance(f"bot:{bot_id}", _SECOND // 30, 30)
