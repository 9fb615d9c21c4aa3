"""Plain key-value storage: bytes to bytes, in the order of the keys, with one undo log.

It stands for any server or library of that kind (FoundationDB, LMDB, RocksDB). Nothing in it knows
of jobs.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator


class KeyValues:
    """An ordered map from bytes to bytes. Writes since the last ``commit`` can be rolled back."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._undo: list[tuple[bytes, bytes | None]] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._undo.append((key, self._values.get(key)))
        self._write(key, value)

    def delete(self, key: bytes) -> None:
        self._undo.append((key, self._values.get(key)))
        self._write(key, None)

    def scan(self, prefix: bytes) -> Iterator[bytes]:
        """The keys with a prefix, in order. The caller may delete those it has seen."""
        position = bisect_left(self._keys, prefix)
        while position < len(self._keys) and self._keys[position].startswith(prefix):
            key = self._keys[position]
            yield key
            position = bisect_left(self._keys, key + b"\0")

    def scan_down(self, prefix: bytes, below: bytes) -> Iterator[bytes]:
        """The keys with a prefix and below a key, in descending order."""
        position = bisect_left(self._keys, below)
        while position and self._keys[position - 1].startswith(prefix):
            position -= 1
            yield self._keys[position]

    def commit(self) -> None:
        self._undo.clear()

    def roll_back(self) -> None:
        for key, value in reversed(self._undo):
            self._write(key, value)
        self._undo.clear()

    def _write(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
            return
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value
