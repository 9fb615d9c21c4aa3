"""Detects changed source files by modification time and size."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

MAX_FILES: Final = 10_000
_SUFFIXES: Final = (".py", ".toml")
_IGNORED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Snapshot: TypeAlias = Mapping[str, tuple[int, int]]


def snapshot(folder: Path) -> Snapshot:
    """Time and size of every source file below ``folder``, at most ``MAX_FILES`` of them."""
    found: dict[str, tuple[int, int]] = {}
    for path in _sources(folder):
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
        if len(found) >= MAX_FILES:
            break
    return found


def changed(before: Snapshot, now: Snapshot) -> list[str]:
    """The names of files that were added, removed or changed."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _sources(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _IGNORED_FOLDERS
            and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
        ]
        for name in files:
            if name.endswith(_SUFFIXES):
                yield os.path.join(parent, name)
