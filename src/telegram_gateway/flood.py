"""Telegram's limits for sending, per chat, per group and per bot, as buckets of this process.

They keep a bot from running into 429; when Telegram says 429 all the same, its word counts.
"""

from dataclasses import dataclass
from typing import Final

from forge_jobs import Clock

_KEPT_MOST: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    per_s: float
    burst: float
    level: float
    at: float

    def wait_s(self, now: float) -> float:
        self.level = min(self.burst, self.level + max(now - self.at, 0.0) * self.per_s)
        self.at = now
        return 0.0 if self.level >= 1.0 - 1e-9 else (1.0 - self.level) / self.per_s


class Flood:
    """The buckets of one bot."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, chat_id: int | str | None) -> float:
        """0 if a message may go now, and it is counted; else the seconds to wait."""
        now = self._clock.mono()
        wanted = [self._bucket("bot", 30.0, 30.0, now)]
        if chat_id is not None:
            wanted.append(self._bucket(f"chat {chat_id}", 1.0, 3.0, now))
            if str(chat_id).startswith(("-", "@")):
                wanted.append(self._bucket(f"group {chat_id}", 20 / 60, 20.0, now))
        wait_s = max(bucket.wait_s(now) for bucket in wanted)
        if wait_s > 0:
            return wait_s
        for bucket in wanted:
            bucket.level -= 1.0
        return 0.0

    def _bucket(self, name: str, per_s: float, burst: float, now: float) -> _Bucket:
        found = self._buckets.get(name)
        if found is None:
            if len(self._buckets) >= _KEPT_MOST:
                self._forget(now)
            found = self._buckets[name] = _Bucket(per_s, burst, burst, now)
        return found

    def _forget(self, now: float) -> None:
        """Full buckets say nothing that a new one would not say."""
        for name, bucket in list(self._buckets.items()):
            if bucket.wait_s(now) == 0.0 and bucket.level >= bucket.burst:
                del self._buckets[name]
