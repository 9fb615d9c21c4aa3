"""Encodes, checks and decodes JSON payloads and results, by the same rules for every backend.

Refused: NaN and infinities, NUL characters and lone surrogates (Postgres cannot store them), more
than 64 levels, and more bytes than the limit.
"""

import ipaddress
from collections import deque
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec

from .errors import BadPayload, PayloadTooLarge

MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_RESULT_BYTES: Final = 256 << 10
MAX_DEPTH: Final = 64


def encode(
    value: object,
    *,
    limit: int = MAX_PAYLOAD_BYTES,
    what: str = "payload",
    fixed_limit: bool = False,
) -> bytes:
    """JSON bytes of ``value``; BadPayload or PayloadTooLarge with a remedy. ``fixed_limit``: no
    option of a task raises the limit."""
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise BadPayload(f"{what} cannot be stored as JSON: {error}") from error
    check(data, limit=limit, what=what, plain=value, fixed_limit=fixed_limit)
    return data


def check(
    data: bytes,
    *,
    limit: int = MAX_PAYLOAD_BYTES,
    what: str,
    plain: object = None,
    fixed_limit: bool = False,
) -> None:
    """Refuse JSON bytes that some backend could not store and return unchanged."""
    if len(data) > limit:
        raise PayloadTooLarge(len(data), limit, what=what, fixed_limit=fixed_limit)
    if b"\\u0000" in data and "\0" in _text_of(data):
        raise BadPayload(f"{what} holds a NUL character (\\u0000), which not every store can keep")
    if b"null" in data and plain is not None and _contains_nan(plain):
        raise BadPayload(f"{what} holds NaN or an infinity, which JSON does not have")
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise BadPayload(f"{what} is nested deeper than {MAX_DEPTH} levels")


def decode(data: bytes) -> Any:
    """The value of JSON bytes."""
    return msgspec.json.decode(data)


def decode_text(text: str | bytes, *, what: str = "payload") -> Any:
    """The value of JSON text from a user; BadPayload with the position of the error."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadPayload(f"{what} is not valid JSON: {error}") from error


def comparable(value: object) -> bytes | None:
    """JSON bytes that are equal for equal values, for comparing only; None if there is no JSON."""
    try:
        return _stable_encoder.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError):
        return None


# Classes whose JSON form is their text.
TEXT_TYPES: Final = (
    PurePath, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network,
    ipaddress.IPv6Network, ipaddress.IPv4Interface, ipaddress.IPv6Interface,
)  # fmt: skip


def _plain(value: object) -> object:
    # pydantic models, if that library is in use, without importing it
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, TEXT_TYPES):
        return str(value)
    if isinstance(value, deque):
        return list(cast("deque[object]", value))
    raise TypeError(f"objects of type {type(value).__name__} have no JSON form")


def _text_of(data: bytes) -> str:
    return "".join(_strings(msgspec.json.decode(data)))


def _strings(value: object) -> list[str]:
    found: list[str] = []
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            for name, inner in item.items():  # pyright: ignore[reportUnknownVariableType]
                stack.extend((name, inner))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, list):
            stack.extend(item)  # pyright: ignore[reportUnknownArgumentType]
    return found


def _contains_nan(value: object) -> bool:
    plain = msgspec.to_builtins(value, enc_hook=_plain)
    stack: list[object] = [plain]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
            return True
        if isinstance(item, dict):
            stack.extend(item.values())  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, (list, tuple)):
            stack.extend(item)  # pyright: ignore[reportUnknownArgumentType]
    return False


def _depth(data: bytes) -> int:
    deepest = level = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            level += 1
            deepest = max(deepest, level)
        elif byte in (0x5D, 0x7D):
            level -= 1
    return deepest


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_stable_encoder = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")
