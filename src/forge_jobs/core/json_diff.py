"""How two JSON values differ, field by field."""

from collections.abc import Iterator
from typing import Any, Final, cast

from msgspec import Struct

MAX_CHANGES: Final = 100
_ABSENT: Final = object()


class Difference(Struct, frozen=True, kw_only=True):
    """One field that differs; ``was`` or ``now`` is None if it is missing there."""

    path: str
    was: Any
    now: Any


def differences(was: object, now: object) -> list[Difference]:
    """The fields that differ, at most 100; ``items[2].name`` is the path of a field."""
    found: list[Difference] = []
    for change in _walk("", was, now):
        if len(found) == MAX_CHANGES:
            break
        found.append(change)
    return found


def _walk(path: str, was: Any, now: Any) -> Iterator[Difference]:
    if isinstance(was, dict) and isinstance(now, dict):
        old, new = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        for name in dict.fromkeys((*old, *new)):
            below = f"{path}.{name}" if path else name
            yield from _walk(below, old.get(name, _ABSENT), new.get(name, _ABSENT))
    elif isinstance(was, list) and isinstance(now, list):
        first, second = cast("list[Any]", was), cast("list[Any]", now)
        for index in range(max(len(first), len(second))):
            yield from _walk(
                f"{path}[{index}]",
                first[index] if index < len(first) else _ABSENT,
                second[index] if index < len(second) else _ABSENT,
            )
    elif type(cast("object", was)) is not type(cast("object", now)) or was != now:
        yield _change(path, was, now)


def _change(path: str, was: Any, now: Any) -> Difference:
    return Difference(
        path=path or "(whole)",
        was=None if was is _ABSENT else was,
        now=None if now is _ABSENT else now,
    )
