"""The contract of handlers, the same for inline runs and jobs."""

from typing import Protocol

from telegram_gateway.calls import Call
from telegram_gateway.update import Update


class Handler(Protocol):
    """Handles the updates of one bot."""

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        """The Bot API calls to make, in order. Raises the outcomes of forge_jobs."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
