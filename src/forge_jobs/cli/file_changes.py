"""Noticing that source files changed, by looking at their times."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

MAX_FILES: Final = 10_000
_SUFFIXES: Final = (".py", ".toml")
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Snapshot: TypeAlias = Mapping[str, tuple[int, int]]


def snapshot(folder: Path) -> Snapshot:
    """Time and size of every source file below ``folder``, at most FILES_MOST of them."""
    found: dict[str, tuple[int, int]] = {}
    for path in _sources(folder):
        try:
            facts = os.stat(path)
        except OSError:
            continue
        found[path] = (facts.st_mtime_ns, facts.st_size)
        if len(found) >= MAX_FILES:
            break
    return found


def changed(before: Snapshot, now: Snapshot) -> list[str]:
    """Files that are new, gone or different, by name."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _sources(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        ]
        for name in files:
            if name.endswith(_SUFFIXES):
                yield os.path.join(place, name)
