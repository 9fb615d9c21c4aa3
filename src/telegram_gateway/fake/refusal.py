"""Error responses of the Bot API."""

from typing import Any


class Refusal(Exception):
    """A response with ``ok: false``."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def answer(self) -> dict[str, Any]:
        """The body of the response."""
        found: dict[str, Any] = {
            "ok": False,
            "error_code": self.code,
            "description": self.description,
        }
        if self.parameters:
            found["parameters"] = self.parameters
        return found


def bad_request(text: str) -> Refusal:
    """A 400 response."""
    return Refusal(400, f"Bad Request: {text}")


def too_many_requests(wait_s: int) -> Refusal:
    """A 429 response with retry_after."""
    return Refusal(429, f"Too Many Requests: retry after {wait_s}", retry_after=wait_s)
