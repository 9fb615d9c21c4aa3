"""Fault injection: makes the next calls fail in the ways real ones do."""

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """The kind of a fault."""

    FLOOD = "flood"
    """429, no effect. ``seconds`` is the retry_after of the response."""
    BROKEN = "broken"
    """A server error (``code``, 502 by default), no effect."""
    REFUSED = "refused"
    """A refusal with ``code`` (403 by default), no effect."""
    HANG = "hang"
    """No response for ``seconds``, then the connection is closed; no effect."""
    LOST = "lost"
    """The call takes effect, and its response is lost."""
    MOVED = "moved"
    """The group became a supergroup, ``chat``."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """The next ``times`` calls of ``method`` (any, if empty) fail like this."""

    trouble: Trouble
    method: str = ""
    bot_id: int | None = None
    times: int = 1
    seconds: float = 1.0
    code: int | None = None
    chat: int = 0

    def matches(self, bot_id: int, method: str) -> bool:
        """Whether the fault applies to this call."""
        if self.times < 1 or self.bot_id not in (None, bot_id):
            return False
        return self.method.lower() in ("", method.lower())
