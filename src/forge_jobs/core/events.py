"""Events: what is sent to waiting jobs, and how a wait names the events it takes.

An event has a name and a key; both together are its *topic*. A wait takes the oldest event of one
of its topics that its job has not taken yet. The order of the events of a topic is their ``seq``,
which a store draws when it delivers an event, so that it is the order of commits.
"""

from datetime import datetime
from typing import Final

from msgspec import Raw, Struct

from .errors import BadName
from .instant import Instant, to_datetime
from .names import key_text, kind_name

DEFAULT_KEEP_S: Final = 7 * 86_400.0
MAX_WAIT_TOPICS: Final = 32
_SEPARATOR: Final = "\x1f"


class NewEvent(Struct, frozen=True, kw_only=True, gc=False):
    """A validated request to send one event. ``payload`` is JSON text.

    ``dedupe_key``: of several events of one name with the same key, only the first is sent, for as
    long as it is kept. ``keep_s``: how long it is kept for waits that begin later.
    """

    name: str
    key: str = ""
    payload: bytes = b"null"
    dedupe_key: str | None = None
    keep_s: float = DEFAULT_KEEP_S


class SentEvent(Struct, frozen=True):
    """The answer to a NewEvent. ``duplicate``: its dedupe key was taken, nothing was sent.
    ``resumed``: how many jobs this call resumed; more may follow if many wait.

    >>> forge.send("paid", {"cents": 5}, key=42, dedupe_key="evt_1").duplicate
    False
    """

    duplicate: bool = False
    resumed: int = 0


class EventRecord(Struct, frozen=True):
    """A stored event. ``seq`` is None while it is not delivered (sent in an open transaction)."""

    name: str
    key: str
    sent_at: Instant
    ends_at: Instant
    payload: bytes
    seq: int | None = None


class TakenEvent(Struct, frozen=True):
    """The value of a step that took an event."""

    name: str
    key: str
    sent_at: Instant
    seq: int
    payload: Raw

    @property
    def moment(self) -> datetime:
        """``sent_at`` as an aware datetime."""
        return to_datetime(self.sent_at)


class WaitTopic(Struct, frozen=True):
    """One topic of a wait: events with a ``seq`` above ``after`` that were sent at ``since`` or
    later."""

    topic: str
    after: int = 0
    since: Instant = 0


class Wait(Struct, frozen=True):
    """A wait of one run: the name of the step that will hold its result, when it began, its topics,
    and until when it waits (None: for ever)."""

    step: str
    began_at: Instant
    topics: tuple[WaitTopic, ...]
    deadline: Instant | None = None


class WaitRecord(Struct, frozen=True):
    """A suspended job and one topic that it waits for."""

    job_id: str
    kind: str
    queue: str
    name: str
    key: str
    step: str
    began_at: Instant
    deadline: Instant | None = None


def event_name(value: str) -> str:
    """An event's name, or BadName. The rule is that of kinds."""
    try:
        return kind_name(value)
    except BadName as error:
        raise BadName("event", value, str(error).partition(": ")[2]) from None


def event_key(value: object) -> str:
    """The text of an event's key, or BadName. Whole numbers count as their digits; None and "" are
    no key."""
    if value is None or value == "":
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return key_text("event key", value)


def dedupe_kind(name: str) -> str:
    """The kind under which the dedupe keys of an event are kept. No task's kind contains "/"."""
    return f"event/{name}"


def topic_of(name: str, key: str) -> str:
    """The topic of an event."""
    return f"{name}{_SEPARATOR}{key}"


def name_and_key(topic: str) -> tuple[str, str]:
    """The two parts of a topic."""
    name, _, key = topic.partition(_SEPARATOR)
    return name, key
