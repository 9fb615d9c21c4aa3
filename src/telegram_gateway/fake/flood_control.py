"""Telegram's patience with bots that send too much: 429, and 429 again for who does not wait."""

import math
from dataclasses import dataclass, field

from forge_jobs import Clock


@dataclass(frozen=True, slots=True)
class FloodRate:
    """``burst`` messages at once, ``rate`` of them a second in the long run."""

    rate: float
    burst: int


@dataclass(slots=True)
class _Level:
    """How full the measure is, as of ``at``; nothing is taken before ``closed_until``."""

    full: float = 0.0
    at: float = 0.0
    closed_until: float = 0.0


@dataclass(slots=True)
class FloodControl:
    """Limits for every chat and for every bot; the real ones are not published."""

    chat: FloodRate = field(default_factory=lambda: FloodRate(1.0, 3))
    bot: FloodRate = field(default_factory=lambda: FloodRate(30.0, 30))
    _levels: dict[tuple[int, str], _Level] = field(
        default_factory=dict[tuple[int, str], _Level], init=False
    )

    def wait_s(self, bot_id: int, chat_id: str, clock: Clock) -> int:
        """0 if the message may go, else after how many seconds to come back: whoever comes sooner
        waits for the rest of them. A refused message counts for nothing."""
        now = clock.mono()
        measures = [(self._level(bot_id, chat_id, now, self.chat), self.chat)]
        measures.append((self._level(bot_id, "", now, self.bot), self.bot))
        for level, patience in measures:
            over_s = (level.full + 1 - patience.burst) / patience.rate
            if level.closed_until > now:
                return math.ceil(level.closed_until - now)
            # A hair is no breach: what is exactly on time was added up from rounded parts.
            if over_s > 1e-6:
                level.closed_until = now + max(math.ceil(over_s), 1)
                return math.ceil(level.closed_until - now)
        for level, _ in measures:
            level.full += 1
        return 0

    def _level(self, bot_id: int, chat_id: str, now: float, patience: FloodRate) -> _Level:
        level = self._levels.setdefault((bot_id, chat_id), _Level(at=now))
        level.full = max(level.full - (now - level.at) * patience.rate, 0.0)
        level.at = now
        return level
