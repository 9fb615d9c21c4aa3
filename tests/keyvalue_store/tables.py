"""Tables and index entries over key-value storage: the two parts that a row-wise store supplies."""

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

import msgspec

from forge_jobs.backends.shared.rowwise.index import Group, Position

from .storage import KeyValues

K = TypeVar("K")
V = TypeVar("V")

_SEPARATOR = b"\0"
_OFFSET = 1 << 63
_NUMBER_BYTES = 8
_encode = msgspec.msgpack.encode


class KeyValueTable(MutableMapping[K, V]):
    """One table: keys ``name`` NUL ``key``, both sides encoded."""

    def __init__(self, values: KeyValues, name: str, key: type[K], value: type[V]) -> None:
        self._values = values
        self._prefix = b"t" + name.encode() + _SEPARATOR
        self._key_of = msgspec.msgpack.Decoder(key).decode
        self._value_of = msgspec.msgpack.Decoder(value).decode

    def __getitem__(self, key: K) -> V:
        found = self._values.get(self._prefix + _encode(key))
        if found is None:
            raise KeyError(key)
        return self._value_of(found)

    def __setitem__(self, key: K, value: V) -> None:
        self._values.put(self._prefix + _encode(key), _encode(value))

    def __delitem__(self, key: K) -> None:
        if self._values.get(self._prefix + _encode(key)) is None:
            raise KeyError(key)
        self._values.delete(self._prefix + _encode(key))

    def __iter__(self) -> Iterator[K]:
        for key in self._values.scan(self._prefix):
            yield self._key_of(key[len(self._prefix) :])

    def __len__(self) -> int:
        return sum(1 for _ in self._values.scan(self._prefix))


class KeyValueEntries:
    """``rowwise.index.OrderedEntries``: keys that sort as the entries do, without a value.

    The texts of a group are hexadecimal, so that no text is the beginning of another one's key.
    """

    def __init__(self, values: KeyValues) -> None:
        self._values = values

    def add(self, group: Group, position: Position) -> None:
        self._values.put(_group_key(group) + _position_key(position), b"")

    def remove(self, group: Group, position: Position) -> None:
        self._values.delete(_group_key(group) + _position_key(position))

    def scan(self, group: Group) -> Iterator[Position]:
        prefix = _group_key(group)
        return (_position(key[len(prefix) :]) for key in self._values.scan(prefix))

    def scan_down(self, group: Group, below: int | None) -> Iterator[Position]:
        prefix = _group_key(group)
        end = prefix + (b"\xff" * 9 if below is None else _position_key((below,)))
        return (_position(key[len(prefix) :]) for key in self._values.scan_down(prefix, end))

    def count(self, group: Group) -> int:
        return sum(1 for _ in self.scan(group))

    def groups(self, prefix: Group) -> list[Group]:
        found: dict[Group, None] = {}
        for key in self._values.scan(_texts_key(prefix)):
            texts = key[1:].partition(_SEPARATOR)[0].split(b",")[:-1]
            found[tuple(bytes.fromhex(text.decode()).decode() for text in texts)] = None
        return sorted(found)


def _texts_key(group: Group) -> bytes:
    return b"e" + b"".join(text.encode().hex().encode() + b"," for text in group)


def _group_key(group: Group) -> bytes:
    return _texts_key(group) + _SEPARATOR


def _position_key(position: Position) -> bytes:
    return b"".join((number + _OFFSET).to_bytes(_NUMBER_BYTES, "big") for number in position)


def _position(key: bytes) -> Position:
    return tuple(
        int.from_bytes(key[start : start + _NUMBER_BYTES], "big") - _OFFSET
        for start in range(0, len(key), _NUMBER_BYTES)
    )
