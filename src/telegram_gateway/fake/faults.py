"""Troubles that are ordered in advance: the next calls fail the way real ones do."""

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """How a call goes wrong."""

    FLOOD = "flood"
    """429; nothing happens. ``seconds`` is what the answer asks to wait."""
    BROKEN = "broken"
    """An error of the server (``code``, 502 by default); nothing happens."""
    REFUSED = "refused"
    """A refusal with ``code``, 403 by default; nothing happens."""
    HANG = "hang"
    """No answer for ``seconds``, then the connection is cut; nothing happens."""
    LOST = "lost"
    """The call takes effect, and its answer is lost on the way."""
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

    def meets(self, bot_id: int, method: str) -> bool:
        """Whether this call is meant."""
        if self.times < 1 or self.bot_id not in (None, bot_id):
            return False
        return self.method.lower() in ("", method.lower())
