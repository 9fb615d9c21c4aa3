"""Rate limits of the fake Telegram: 429, and 429 again for calls before retry_after."""

import math
from dataclasses import dataclass, field

from forge_jobs import Clock


@dataclass(frozen=True, slots=True)
class FloodRate:
    """``burst`` messages at once, ``rate`` messages per second on average."""

    rate: float
    burst: int


@dataclass(slots=True)
class _BucketLevel:
    """The fill level of a leaky bucket as of ``at``; closed until ``closed_until``."""

    full: float = 0.0
    at: float = 0.0
    closed_until: float = 0.0


@dataclass(slots=True)
class FloodControl:
    """Limits per chat and per bot; Telegram does not publish the real ones."""

    chat: FloodRate = field(default_factory=lambda: FloodRate(1.0, 3))
    bot: FloodRate = field(default_factory=lambda: FloodRate(30.0, 30))
    _levels: dict[tuple[int, str], _BucketLevel] = field(
        default_factory=dict[tuple[int, str], _BucketLevel], init=False
    )

    def wait_s(self, bot_id: int, chat_id: str, clock: Clock) -> int:
        """0 if the message may be sent, else retry_after in seconds. Calls before that are refused
        with the remaining seconds. A refused message is not counted."""
        now = clock.mono()
        levels = [(self._refreshed_level(bot_id, chat_id, now, self.chat), self.chat)]
        levels.append((self._refreshed_level(bot_id, "", now, self.bot), self.bot))
        for level, rate_limit in levels:
            over_s = (level.full + 1 - rate_limit.burst) / rate_limit.rate
            if level.closed_until > now:
                return math.ceil(level.closed_until - now)
            # Tolerance for rounding: messages exactly on time are accepted.
            if over_s > 1e-6:
                level.closed_until = now + max(math.ceil(over_s), 1)
                return math.ceil(level.closed_until - now)
        for level, _ in levels:
            level.full += 1
        return 0

    def _refreshed_level(
        self, bot_id: int, chat_id: str, now: float, rate_limit: FloodRate
    ) -> _BucketLevel:
        level = self._levels.setdefault((bot_id, chat_id), _BucketLevel(at=now))
        level.full = max(level.full - (now - level.at) * rate_limit.rate, 0.0)
        level.at = now
        return level
