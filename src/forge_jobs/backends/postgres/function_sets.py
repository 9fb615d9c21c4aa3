"""Versioned sets of server functions, so that old and new processes can share one schema.

``functions/exchange_v1.sql`` is the set ``exchange_v1``: an entry function and its helpers. All
functions of a set end in its version (``exchange_v1``, ``pick_limited_v1``) and call other sets by
their versioned names, so that a second version can be installed beside the first.

* A change that keeps signature and meaning raises the ``revision`` in the file's head. A process
  replaces sets of an older revision and never installs an older one over a newer one.
* A change of signature or meaning is a new file, ``exchange_v2.sql``. The file of the old version
  stays for one release, in which both kinds of processes run.

The table ``function_sets`` holds which revision of each set is installed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files
from typing import Final

_PACKAGE: Final = "forge_jobs.backends.postgres.functions"
_HEAD: Final = re.compile(
    r"-- set: (\w+_v\d+)\n-- revision: (\d+)\n-- requires: (none|\w+_v\d+(?:, \w+_v\d+)*)\n"
)
_FUNCTION: Final = re.compile(
    r"^CREATE OR REPLACE (?:FUNCTION|PROCEDURE) forge\.(\w+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class FunctionSet:
    """One file: functions that are installed together. ``requires`` names sets that they call."""

    name: str
    revision: int
    requires: tuple[str, ...]
    text: str

    @property
    def functions(self) -> list[str]:
        """The names of its functions."""
        return _FUNCTION.findall(self.text)


@cache
def load() -> tuple[FunctionSet, ...]:
    """All sets of this release, each behind those it requires."""
    found: dict[str, FunctionSet] = {}
    for entry in sorted(files(_PACKAGE).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            one = _read(entry.name, entry.read_text(encoding="utf-8"))
            found[one.name] = one
    order = TopologicalSorter({one.name: one.requires for one in found.values()})
    return tuple(found[name] for name in order.static_order())


def outdated(installed: Mapping[str, int], wanted: Iterable[FunctionSet]) -> list[FunctionSet]:
    """The sets to install: those that are missing or older than ours."""
    return [one for one in wanted if installed.get(one.name, 0) < one.revision]


def _read(file: str, text: str) -> FunctionSet:
    head = _HEAD.match(text)
    if head is None or file != f"{head[1]}.sql":
        raise ValueError(f"functions/{file} does not begin with its set, revision and requires")
    requires = () if head[3] == "none" else tuple(head[3].split(", "))
    return FunctionSet(head[1], int(head[2]), requires, text)
