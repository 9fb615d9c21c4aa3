"""Rules for the names of queues, kinds, schedules, keys and tags, checked once at the API."""

import re
from collections.abc import Iterable

from .errors import BadName

_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,62}")
_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]{0,126}")
_SCHEDULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,126}")
_QUEUE_RULE = "use 1 to 63 letters, digits, '_', '-' or '.', not starting with '-' or '.'"
_KIND_RULE = "use 1 to 127 letters, digits, '_', '-', '.' or ':', starting with a letter or '_'"
_SCHEDULE_RULE = (
    "use 1 to 127 letters, digits, '_', '-', '.' or ':', starting with a letter, digit or '_'"
)
_MAX_KEY_LENGTH = 512
MAX_TAGS = 32


def queue_name(value: str) -> str:
    """A queue's name, or BadName."""
    return matched("queue", value, _QUEUE, _QUEUE_RULE)


def kind_name(value: str) -> str:
    """A task's kind, or BadName."""
    return matched("kind", value, _KIND, _KIND_RULE)


def schedule_name(value: str) -> str:
    """A schedule's name, or BadName."""
    return matched("schedule", value, _SCHEDULE, _SCHEDULE_RULE)


def key_text(field: str, value: object) -> str:
    """A dedupe key, lane or limit key: any printable text of bounded length, or BadName."""
    rule = f"use 1 to {_MAX_KEY_LENGTH} characters without control characters"
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_KEY_LENGTH or not _storable(value):
        raise BadName(field, value, rule)
    return value


def tag_list(values: Iterable[str]) -> tuple[str, ...]:
    """Tags without repeats, order kept, or BadName."""
    if isinstance(values, str):
        raise BadName("tags", values, "pass a list of strings, not one string")
    tags = tuple(dict.fromkeys(key_text("tag", tag) for tag in values))
    if len(tags) > MAX_TAGS:
        raise BadName("tags", f"{len(tags)} tags", f"at most {MAX_TAGS} tags are kept")
    for tag in tags:
        if "," in tag:
            raise BadName("tag", tag, "a tag must not contain a comma")
    return tags


def matched(field: str, value: object, pattern: re.Pattern[str], rule: str) -> str:
    """``value``, or BadName if it does not match ``pattern``."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise BadName(field, value, rule)
    return value


def _storable(text: str) -> bool:
    # Backends store lone surrogates and control characters differently.
    return text.isprintable()
