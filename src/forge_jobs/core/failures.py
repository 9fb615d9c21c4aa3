"""Which failures are the same: the group of an error message and its traceback.

Two failures are of one group if the type of their exceptions, their normalised messages and the
frames where the user's code failed are equal. Line numbers do not count, so that a release that
moves a line starts no new group.
"""

import re
from collections.abc import Callable
from hashlib import blake2s
from typing import Final

from msgspec import Struct

from .failing_line import failing_frame

MAX_MESSAGE_CHARS: Final = 240
_READ_CHARS: Final = 1_000
_MAX_TYPE_CHARS: Final = 100
_MAX_FRAME_CHARS: Final = 160

_TYPE: Final = re.compile(r"(?P<type>[A-Za-z_]\w{0,99})(?:: |$)")
# A name that says of itself that it is an exception, for a message without a traceback.
_EXCEPTION: Final = re.compile(r"(?:Error|Exception|Warning|Exit|Interrupt|Failure)\Z")
_SPACE: Final = re.compile(r"\s+")
# What differs between failures of one cause, and the word that takes its place; in this order. Each
# pattern is bounded or begins at a mark, so that a long message costs linear time.
_VARIABLES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"(?<=[a-zA-Z0-9])://[^\s\"'<>]+", "://<url>"),
        (r"(?<!\w)'[^'\n]{0,200}'(?!\w)|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`", "<value>"),
        (r"[\w.+\-]{1,64}@[\w\-]{1,64}(?:\.[\w\-]{1,64})*", "<email>"),
        (r"(?<![\w.])(?:[A-Za-z]:|[.~]{1,2})?(?:[/\\][\w.@~+\-]{1,100})+[/\\]?", "<path>"),
        (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<id>"),
        (
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[\-+]\d\d:?\d\d)?)?",
            "<time>",
        ),
        (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", "<address>"),
        (r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}:?[0-9a-fA-F]{0,4}(?![\w:])", "<address>"),
        (r"\b0x[0-9a-fA-F]+\b", "<address>"),
        (r"\b(?=[0-9a-fA-F]{0,40}\d)(?=\d{0,40}[a-fA-F])[0-9a-fA-F]{8,64}\b", "<id>"),
        (r"\b(?=\w{0,40}\d\w{0,40}\d\w{0,40}\d)(?=\d{0,40}[A-Za-z])\w{6,64}\b", "<id>"),
        (r"(?:(?<![\w)])[\-+])?\d[\d_]*(?:[.,:]\d+)*(?:e[\-+]?\d+)?", "<n>"),
    )
)


class FailureGroup(Struct, frozen=True):
    """What failures of one group have in common. ``type`` is empty for an error that was no
    exception, ``frame`` without a traceback."""

    id: str
    type: str
    message: str
    frame: str = ""


def group_of(
    error: str, traceback: str | None, mask: Callable[[str], str] = lambda text: text
) -> FailureGroup:
    """The group of one failure. ``mask`` hides the secrets of a message.

    >>> group_of("ValueError: no user 42", None).message
    'no user <n>'
    """
    kind, message = _split(error[:_READ_CHARS], traceback)
    frame = failing_frame(traceback)
    where = ""
    if frame is not None:
        where = f"{frame.file} in {frame.function}" if frame.function else frame.file
        where = where[:_MAX_FRAME_CHARS]
    normal = normalised(mask(message))
    key = "\0".join((kind, normal, where)).encode("utf-8", "replace")
    return FailureGroup(blake2s(key, digest_size=6).hexdigest(), kind, normal, where)


def normalised(message: str) -> str:
    """The message without what differs between failures of one cause: numbers, ids, addresses,
    paths and quoted values.

    >>> normalised("order 17 of 'ann@x.org' not at https://shop.example/17")
    'order <n> of <value> not at https://<url>'
    """
    text = _SPACE.sub(" ", message[:_READ_CHARS]).strip()
    for pattern, word in _VARIABLES:
        text = pattern.sub(word, text)
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def _split(error: str, traceback: str | None) -> tuple[str, str]:
    """The type of the exception and its message. A message that only looks as if it began with a
    type stays whole: the traceback says which exception it was."""
    found = _TYPE.match(error)
    if found is None:
        return "", error
    kind = found["type"]
    if traceback is not None:
        is_type = re.search(rf"^(?:[\w.]+\.)?{kind}(?::|$)", traceback, re.MULTILINE) is not None
    else:
        is_type = _EXCEPTION.search(kind) is not None
    if not is_type:
        return "", error
    return kind[:_MAX_TYPE_CHARS], error[found.end() :]
