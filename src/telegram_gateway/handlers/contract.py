"""The contract of handlers, the same at the door and in the queue."""

from typing import Protocol

from telegram_gateway.calls import Call
from telegram_gateway.update import Update


class Handler(Protocol):
    """Answers updates of one bot."""

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        """The calls to make, in order; the outcomes of forge_jobs are raised."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
