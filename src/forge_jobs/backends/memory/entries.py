"""Ordered index entries in memory: a sorted list per group."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from forge_jobs.backends.shared.rowwise.index import Group, Position


class SortedEntries:
    """``OrderedEntries`` of ``rowwise.index`` in memory.

    Groups with the same first name are kept together, so that ``groups`` reads only those.
    """

    def __init__(self) -> None:
        self._lists: dict[str, dict[Group, list[Position]]] = {}

    def add(self, group: Group, position: Position) -> None:
        insort(self._lists.setdefault(group[0], {}).setdefault(group, []), position)

    def remove(self, group: Group, position: Position) -> None:
        named = self._lists[group[0]]
        positions = named[group]
        del positions[bisect_left(positions, position)]
        if not positions:
            del named[group]

    def scan(self, group: Group) -> Iterator[Position]:
        positions = self._positions(group)
        index = 0
        while index < len(positions):
            position = positions[index]
            yield position
            # The caller may have removed it, and others before it.
            index = bisect_right(positions, position, hi=min(index + 1, len(positions)))

    def scan_down(self, group: Group, below: int | None) -> Iterator[Position]:
        positions = self._positions(group)
        end = len(positions) if below is None else bisect_left(positions, (below,))
        while end:
            end -= 1
            yield positions[end]

    def count(self, group: Group) -> int:
        return len(self._positions(group))

    def groups(self, prefix: Group) -> list[Group]:
        named = self._lists.get(prefix[0], {})
        return sorted(group for group in named if group[: len(prefix)] == prefix)

    def _positions(self, group: Group) -> list[Position]:
        return self._lists.get(group[0], {}).get(group, [])
