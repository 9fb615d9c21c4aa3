"""The settings of one bot. Tokens and secrets are excluded from every repr."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]
MAX_QUEUE_NAME: Final = 63
DEFAULT_UPDATES: Final = ("message", "edited_message", "callback_query")
# Every kind of update of the Bot API.
KNOWN_UPDATES: Final = (
    "message", "edited_message", "channel_post", "edited_channel_post", "business_connection",
    "business_message", "edited_business_message", "deleted_business_messages",
    "message_reaction", "message_reaction_count", "inline_query", "chosen_inline_result",
    "callback_query", "shipping_query", "pre_checkout_query", "purchased_paid_media", "poll",
    "poll_answer", "my_chat_member", "chat_member", "chat_join_request", "chat_boost",
    "removed_chat_boost",
)  # fmt: skip
DEFAULT_BACKOFF_S: Final = (30.0, 120.0, 600.0, 3_600.0)
DEFAULT_MAX_WAITING: Final = 100_000
DEFAULT_DEAD_MESSAGE: Final = "Sorry, your message could not be processed. Reference: {reference}"


class HandlerName(StrEnum):
    """Which handler processes a bot's updates."""

    ECHO = "echo"
    HTTP = "http"
    AUTH = "auth"
    COMMAND = "command"


class Mode(StrEnum):
    """How updates arrive."""

    WEBHOOK = "webhook"
    POLLING = "polling"


class Ordering(StrEnum):
    """The order in which updates of one chat are run."""

    SERIAL = "serial"
    STRICT = "strict"
    NONE = "none"


class SyncFailure(StrEnum):
    """The response to Telegram when an inline handler fails: 200, or 503 for a redelivery."""

    ACK = "ack"
    REDELIVER = "redeliver"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """Where the http handler posts to. ``networks`` None allows public addresses only; an empty
    tuple allows private ones, too."""

    url: str
    timeout_s: float = 5.0
    networks: Networks | None = None
    signing: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """The pool of long-running programs of the command handler."""

    argv: tuple[str, ...]
    size: int = 1
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """Everything about one bot."""

    slug: str
    handler: HandlerName
    token: str = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)
    api_base: str = "https://api.telegram.org"
    in_queue: bool = False
    require_auth: bool = True
    http: HttpTarget | None = None
    command: CommandSettings | None = None
    mode: Mode = Mode.WEBHOOK
    allowed_updates: tuple[str, ...] = DEFAULT_UPDATES
    max_connections: int = 40
    ordering: Ordering = Ordering.SERIAL
    overtaking: tuple[str, ...] = ()
    max_waiting: int = DEFAULT_MAX_WAITING
    max_attempts: int = 5
    backoff_s: tuple[float, ...] = DEFAULT_BACKOFF_S
    notify_on_dead: bool = True
    dead_message: str = DEFAULT_DEAD_MESSAGE
    sync_failure: SyncFailure = SyncFailure.ACK
    allowed_users: frozenset[int] = frozenset()
    allowed_chats: frozenset[int] = frozenset()

    @property
    def id(self) -> str:
        """Telegram's id of the bot. It identifies the bot even if the slug is reused."""
        return self.token.partition(":")[0]

    @property
    def updates_queue(self) -> str:
        """The queue of its updates."""
        return _queue_name("updates", self.slug)

    @property
    def sends_queue(self) -> str:
        """The queue of its outgoing calls."""
        return _queue_name("sends", self.slug)

    @property
    def handler_timeout_s(self) -> float:
        """The handler's own time limit for one update; 0 if it has none."""
        section = self.http or self.command
        return 0.0 if section is None else section.timeout_s


def _queue_name(prefix: str, slug: str) -> str:
    name = f"{prefix}.{slug}"
    if len(name) <= MAX_QUEUE_NAME:
        return name
    digest = hashlib.sha256(slug.encode()).hexdigest()[:8]
    return f"{name[: MAX_QUEUE_NAME - 9]}-{digest}"
