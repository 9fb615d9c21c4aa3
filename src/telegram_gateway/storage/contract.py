"""The contract of the gateway's own tables. Instants are microseconds since 1970."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from telegram_gateway.flood import SendLimit


class Reply(Protocol):
    """A message that is sent if and only if its change is committed."""

    def enqueue_in(self, tx: object) -> None:
        """Store it within a transaction, from synchronous code."""
        ...

    async def aenqueue_in(self, tx: object) -> None:
        """The same, from a coroutine."""
        ...

    async def aenqueue(self) -> None:
        """Store or send it on its own."""
        ...


class QuarantinedBody(NamedTuple):
    """A body that was not an update. ``size`` is its length when it arrived: ``body`` is shorter if
    it was long, and empty if it might contain a code."""

    id: int
    at: int
    bot_id: str
    reason: str
    size: int
    body: bytes

    @property
    def is_complete(self) -> bool:
        """Whether the whole body was stored."""
        return len(self.body) == self.size


class GatewayStore(Protocol):
    """Sessions, wrong codes, quarantine, send limits, and the kinds of bots' updates. A session is
    valid for all bots."""

    async def probe(self) -> None:
        """Raise an exception if the database cannot be used. Nothing is created or changed."""
        ...

    async def open(self) -> None:
        """Create the tables if they are missing."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...

    async def session_until(self, user_id: int, now: int) -> int | None:
        """When the user's session ends; None when there is none."""
        ...

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        """Start or extend a session, delete the wrong codes, and reply."""
        ...

    async def end_session(self, user_id: int, reply: Reply) -> None:
        """End a session, if there is one, and reply."""
        ...

    async def delete_user(self, user_id: int) -> None:
        """Delete everything about a user, without a reply."""
        ...

    async def wrong_codes(self, user_id: int, since: int) -> int:
        """How many wrong codes the user sent since that instant."""
        ...

    async def record_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        """Record one wrong code, and reply."""
        ...

    async def quarantine(self, bot_id: str, at: int, body: bytes, *, reason: str, size: int) -> int:
        """Store a body that is not an update, and return its number."""
        ...

    async def quarantined(self, *, bot_id: str | None, limit: int) -> list[QuarantinedBody]:
        """The quarantined bodies of one bot or of all bots, newest first."""
        ...

    async def quarantined_body(self, number: int) -> QuarantinedBody | None:
        """One quarantined body."""
        ...

    async def delete_quarantined(self, number: int) -> None:
        """Delete a quarantined body, if it exists."""
        ...

    async def assign_update_kind(self, bot_id: str, candidates: Sequence[str]) -> dict[str, str]:
        """Assign the first candidate that no bot has to this bot, unless it has one already. The
        kinds of all bots afterwards, by bot id."""
        ...

    async def queue_slots(self) -> dict[str, int]:
        """The slots that a gateway last gave to each queue."""
        ...

    async def record_queue_slots(self, queue: str, slots: int) -> None:
        """Record that a gateway gave these slots to the queue."""
        ...

    async def acquire(self, wanted: Sequence[SendLimit], now: int) -> int:
        """Acquire one send from all of these limits and return 0, or acquire none and return the
        microseconds to wait."""
        ...

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        """Delete expired rows and return how many sessions, codes and bodies they were."""
        ...
