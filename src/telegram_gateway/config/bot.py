"""One bot as the gateway knows it. Tokens and secrets never show in a repr."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]
QUEUE_LONGEST: Final = 63
DEFAULT_UPDATES: Final = ("message", "edited_message", "callback_query")
DEFAULT_BACKOFF_S: Final = (30.0, 120.0, 600.0, 3_600.0)
DEFAULT_MAX_WAITING: Final = 100_000
DEFAULT_DEAD_MESSAGE: Final = "Sorry, your message could not be processed. Reference: {reference}"


class HandlerName(StrEnum):
    """What answers a bot's updates."""

    ECHO = "echo"
    HTTP = "http"
    AUTH = "auth"
    COMMAND = "command"


class Mode(StrEnum):
    """How updates arrive."""

    WEBHOOK = "webhook"
    POLLING = "polling"


class Ordering(StrEnum):
    """What is promised about the updates of one chat."""

    SERIAL = "serial"
    STRICT = "strict"
    NONE = "none"


class SyncFailure(StrEnum):
    """What Telegram is told when a handler at the door fails."""

    ACK = "ack"
    REDELIVER = "redeliver"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """Where the http handler posts to. ``networks`` None means public addresses only; an empty
    tuple means any private one, too."""

    url: str
    timeout_s: float = 5.0
    networks: Networks | None = None
    signing: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlan:
    """The warm programs of the command handler."""

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
    command: CommandPlan | None = None
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
        """Telegram's number of the bot: it stays with the bot whatever the slug points at."""
        return self.token.partition(":")[0]

    @property
    def updates_queue(self) -> str:
        """The queue its updates wait in."""
        return _queue("updates", self.slug)

    @property
    def sends_queue(self) -> str:
        """The queue its outgoing messages wait in."""
        return _queue("sends", self.slug)

    @property
    def handler_most_s(self) -> float:
        """How long its handler may take for one update, by its own settings."""
        plan = self.http or self.command
        return 0.0 if plan is None else plan.timeout_s


def _queue(prefix: str, slug: str) -> str:
    name = f"{prefix}.{slug}"
    if len(name) <= QUEUE_LONGEST:
        return name
    mark = hashlib.sha256(slug.encode()).hexdigest()[:8]
    return f"{name[: QUEUE_LONGEST - 9]}-{mark}"
