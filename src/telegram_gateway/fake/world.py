"""The state of the fake Telegram: bots, their chats, and the entries of each chat in order.

A private chat belongs to one bot: the same user has another chat with another bot.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .call_parameters import CallParameters
from .updates import PendingUpdate

if TYPE_CHECKING:
    from .delivery import Delivery

_MAX_KEPT: Final = 100_000


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A method call of a bot. ``way``: ``http``, or ``webhook`` for a call in a response."""

    method: str
    parameters: dict[str, Any]
    way: str = "http"


@dataclass(frozen=True, slots=True)
class Entry:
    """One event in a chat. ``call`` is the bot's request; None for events of the user."""

    number: int
    at: int
    by: str
    what: str
    message: dict[str, Any]
    call: ReceivedCall | None = None

    def shown(self) -> dict[str, Any]:
        """The entry as the control API returns it."""
        found: dict[str, Any] = {
            "number": self.number,
            "at": self.at,
            "by": self.by,
            "what": self.what,
            "message": self.message,
        }
        if self.call is not None:
            call = self.call
            found["call"] = {
                "method": call.method,
                "parameters": call.parameters,
                "way": call.way,
            }
        return found


@dataclass(slots=True)
class Chat:
    """One chat of a bot."""

    about: dict[str, Any]
    blocked: bool = False
    moved_to: int | None = None
    entries: list[Entry] = field(default_factory=list[Entry])
    messages: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    last_message: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def next_message(self) -> int:
        """The id for the next message."""
        self.last_message += 1
        return self.last_message

    def add(
        self, at: int, by: str, what: str, message: dict[str, Any], call: ReceivedCall | None = None
    ) -> None:
        """Append an entry and wake its waiters."""
        self.entries.append(Entry(len(self.entries) + 1, at, by, what, message, call))
        self.changed.set()
        self.changed = asyncio.Event()

    def received(self, what: str | None = None) -> list[Entry]:
        """The bot's entries in order; ``what`` filters them, for example ``message``."""
        return [one for one in self.entries if one.by == "bot" and what in (None, one.what)]

    def texts(self) -> list[str]:
        """The texts of the bot's messages, in order."""
        return [str(one.message.get("text", "")) for one in self.received("message")]


@dataclass(slots=True)
class WebhookSettings:
    """The webhook of a bot."""

    url: str
    secret: str = field(default="", repr=False)
    connections: int = 40
    last_error_at: int | None = None
    last_error: str = ""
    gone_since: float | None = None


@dataclass(slots=True, eq=False)
class FakeBot:
    """One bot: its chats, and its pending updates."""

    token: str = field(repr=False)
    name: str
    username: str
    next_update: int
    revoked: bool = False
    chats: dict[int, Chat] = field(default_factory=dict[int, Chat])
    waiting: OrderedDict[int, PendingUpdate] = field(
        default_factory=OrderedDict[int, PendingUpdate]
    )
    allowed: frozenset[str] | None = None
    webhook: WebhookSettings | None = None
    webhook_set_at: float | None = None
    delivery: "Delivery | None" = None
    poller: "asyncio.Future[None] | None" = None
    queries: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    commands: list[Any] = field(default_factory=list[Any])
    delivered: list[int] = field(default_factory=list[int])
    expired: list[int] = field(default_factory=list[int])

    @property
    def id(self) -> int:
        """The bot's id: the number before the colon of its token."""
        return int(self.token.partition(":")[0])

    @property
    def user(self) -> dict[str, Any]:
        """The bot's User object."""
        return {
            "id": self.id,
            "is_bot": True,
            "first_name": self.name,
            "username": self.username,
        }

    def chat(self, chat_id: int) -> Chat:
        """An existing chat; KeyError if there is none."""
        return self.chats[chat_id]

    def finish_update(self, update: PendingUpdate, *, delivered: bool) -> None:
        """Remove a pending update that was delivered or has expired."""
        if self.waiting.pop(update.id, None) is None:
            return
        kept = self.delivered if delivered else self.expired
        kept.append(update.id)
        del kept[:-_MAX_KEPT]


Method: TypeAlias = Callable[[FakeBot, CallParameters, ReceivedCall], Awaitable[Any]]
"""A method of the Bot API."""
