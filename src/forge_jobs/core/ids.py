"""Public job ids: ULIDs that contain the row key.

A ULID has 48 bits of milliseconds and 80 bits that are usually random. Ours contain the row key (64
bits) and the tag of the database (16 bits). So an id leads to its row without an index of its own,
ids sort by age, and the id of another database is recognised.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUE: Final = {char: value for value, char in enumerate(_ALPHABET)}
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_LENGTH = 26
SHORT: Final = 8
_SHORT_KEY_BITS: Final = 5 * SHORT - 16
# More jobs with the same end would need a table of a billion rows.
_MAX_SHORT_KEYS: Final = 64


def encode(number: int) -> str:
    """26 Crockford base-32 characters for a 128-bit number."""
    pairs = _PAIRS
    return "".join([pairs[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def decode(text: str) -> int | None:
    """The number that 26 characters encode; None when the text is not a ULID."""
    if len(text) != _LENGTH or text[0] > "7" or not text.isascii():
        return None
    number = 0
    for char in text.upper():
        value = _VALUE.get(char)
        if value is None:
            return None
        number = number << 5 | value
    return number


def job_id(key: int, enqueued_at: int, tag: int) -> str:
    """The public id of the row ``key`` that was enqueued at an instant in the database ``tag``."""
    low, pairs = key << 16 | tag, _PAIRS
    return (
        f"{_prefix(enqueued_at // 1000)}"
        f"{pairs[low >> 70 & 1023]}{pairs[low >> 60 & 1023]}{pairs[low >> 50 & 1023]}"
        f"{pairs[low >> 40 & 1023]}{pairs[low >> 30 & 1023]}{pairs[low >> 20 & 1023]}"
        f"{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def job_ids(keys: Iterable[int], enqueued_at: int, tag: int) -> list[str]:
    """The public ids of rows that were enqueued together. Consecutive keys share all but the last
    characters, which makes this cheaper than ``job_id`` for each."""
    pairs, found = _PAIRS, list[str]()
    block, head = -1, ""
    high, low = tag >> 10, pairs[tag & 1023]
    for key in keys:
        if key >> 14 != block:
            block = key >> 14
            head = job_id(key, enqueued_at, tag)[:20]
        found.append(f"{head}{pairs[key >> 4 & 1023]}{pairs[(key & 15) << 6 | high]}{low}")
    return found


@lru_cache(maxsize=64)
def _prefix(millisecond: int) -> str:
    """The first ten characters, which jobs of one burst share."""
    return encode(millisecond << 80)[:10]


def row_key(public_id: str, tag: int) -> tuple[int, int] | None:
    """(row key, enqueue millisecond) of a public id; None for another database or no ULID.

    The caller compares the millisecond with the row's, so that an invented id finds no job.
    """
    number = decode(public_id)
    if number is None or number & 0xFFFF != tag:
        return None
    return number >> 16 & 0xFFFF_FFFF_FFFF_FFFF, number >> 80


def is_short(text: str) -> bool:
    """Whether a text can be the last 8 characters of an id, which lists show."""
    return len(text) == SHORT and all(char in _VALUE for char in text.upper())


def short_keys(text: str, tag: int, newest: int) -> list[int]:
    """The row keys whose ids end with 8 characters, the newest first, up to the newest key."""
    number = 0
    for char in text.upper():
        number = number << 5 | _VALUE[char]
    if number & 0xFFFF != tag:
        return []
    low, step = number >> 16, 1 << _SHORT_KEY_BITS
    if newest < low:
        return []
    top = low + (newest - low) // step * step
    return list(range(top, -1, -step))[:_MAX_SHORT_KEYS]
