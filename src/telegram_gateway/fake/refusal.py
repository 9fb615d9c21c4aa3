"""What the Bot API answers when it says no."""

from typing import Any


class Refusal(Exception):
    """An answer with ``ok: false``."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def answer(self) -> dict[str, Any]:
        """The body."""
        found: dict[str, Any] = {
            "ok": False,
            "error_code": self.code,
            "description": self.description,
        }
        if self.parameters:
            found["parameters"] = self.parameters
        return found


def bad(text: str) -> Refusal:
    """A mistake in the request."""
    return Refusal(400, f"Bad Request: {text}")


def too_many(wait_s: int) -> Refusal:
    """Come back later."""
    return Refusal(429, f"Too Many Requests: retry after {wait_s}", retry_after=wait_s)
