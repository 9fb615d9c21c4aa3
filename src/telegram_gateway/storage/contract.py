"""What the gateway keeps besides jobs. Instants are microseconds since 1970."""

from collections.abc import Sequence
from typing import Protocol

from telegram_gateway.flood import Allowance


class Reply(Protocol):
    """A message that is to be sent if and only if a change is kept."""

    def enqueue_in(self, tx: object) -> None:
        """Store it within a transaction, from synchronous code."""
        ...

    async def aenqueue_in(self, tx: object) -> None:
        """The same, from a coroutine."""
        ...

    async def aenqueue(self) -> None:
        """Store or send it on its own."""
        ...


class GatewayStore(Protocol):
    """Sessions hold for all bots of the gateway."""

    async def open(self) -> None:
        """Create the tables if they are missing."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...

    async def session_until(self, user_id: int, now: int) -> int | None:
        """When the user's session ends; None when there is none."""
        ...

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        """Open or prolong a session, forget wrong codes, and reply."""
        ...

    async def end_session(self, user_id: int, reply: Reply) -> None:
        """End a session, if there is one, and reply."""
        ...

    async def forget_user(self, user_id: int) -> None:
        """Remove everything about a user, without a word."""
        ...

    async def wrong_codes(self, user_id: int, since: int) -> int:
        """How many wrong codes the user tried since then."""
        ...

    async def note_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        """Count one wrong code, and reply."""
        ...

    async def quarantine(self, bot_id: str, at: int, body: bytes) -> None:
        """Keep a body that is no update."""
        ...

    async def take(self, wanted: Sequence[Allowance], now: int) -> int:
        """Take one message from all of these, or from none: the microseconds to wait then."""
        ...

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        """Forget what is over; how many rows that were."""
        ...
