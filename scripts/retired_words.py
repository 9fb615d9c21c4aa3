"""The retired words, and the names in the code that still contain one.

`docs/glossary.md` gives the word that replaces each of them. A name contains a word when the word
is one of its parts: `LotRow` and `take_lot` contain `lot`, `slot` and `remove` contain nothing.
Checked are the names of modules, packages, classes and top-level functions, and in SQL the names of
files and functions. Methods, variables and prose are not checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The word of the glossary, and the words that it replaces.
INSTEAD: dict[str, tuple[str, ...]] = {
    "in-flight jobs": ("floor", "place", "places"),
    "exchange loop": ("pump", "pumps"),
    "dispatcher": ("intake", "intakes"),
    "finish buffer": ("outbox", "ending", "endings"),
    "background finisher": ("beside",),
    "reconciler": ("doubt", "doubts"),
    "prefetch": ("pace", "ahead"),
    "lease state": ("standing",),
    "registration": ("membership", "card", "cards"),
    "shutdown": ("leaving",),
    "store latency": ("trip", "trips"),
    "transition": ("move", "moves"),
    "queries": ("look", "looks"),
    "metrics, counters, roll-up": (
        "books", "tally", "tallies", "fold", "folds", "ledger", "ledgers",
    ),
    "limit bucket": ("lot", "lots"),
    "claim lease": ("seat", "seats"),
    "notify, listen": ("bell", "bells", "ring", "rings", "hint", "hints", "hearing"),
    "claim watermark": ("floors",),
    "store clock": ("present",),
    "error mapping": ("fault", "faults"),
    "finish": ("settle", "settles", "conclude", "concludes", "judge", "judges"),
    "max": ("most",),
    "a verb of programming": (
        "pour", "pours", "rouse", "rouses", "calm", "calms", "tell", "tells",
    ),
}  # fmt: skip
RETIRED = {word: instead for instead, words in INSTEAD.items() for word in words}
# Retired as the whole name of a module only: `watch` was the timer of deadlines, while `loop_watch`
# and `watching` say what they do.
RETIRED_MODULES = {"watch": "deadlines"}
# Full names that may stay although a part of them is retired: names of the public interface, and
# names that somebody else gave.
EXEMPT: frozenset[str] = frozenset(
    {
        "looks_secret",  # a predicate in plain English
        "_hint", "_hints",  # type hints
        "faults", "Fault",  # fault injection is the field's word
    }
)  # fmt: skip

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SQL_FUNCTION = re.compile(
    r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\s+([\w.{}\"]+)", re.I | re.M
)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name that contains a retired word. `kind` says what it names."""

    file: str
    line: int
    kind: str
    name: str
    word: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name} ({self.kind}: {self.word})"

    @property
    def instead(self) -> str:
        """The word of the glossary."""
        return RETIRED.get(self.word) or RETIRED_MODULES[self.word]


def parts(name: str) -> list[str]:
    """The words of a name in snake_case or CamelCase, in lower case."""
    return [part.lower() for part in _PARTS.findall(name)]


def retired_part(name: str) -> str | None:
    """The first retired word in a name; None if there is none or the name is exempt."""
    if name in EXEMPT:
        return None
    return next((part for part in parts(name) if part in RETIRED), None)


def occurrences(folder: Path, root: Path) -> Iterator[Occurrence]:
    """Every name with a retired word in the files below `folder`; paths are relative to `root`."""
    packages: set[Path] = set()
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".py", ".sql") or "__pycache__" in path.parts:
            continue
        # A folder is reported once, at its first file.
        for package in reversed(path.relative_to(folder).parents):
            if package.name and package not in packages:
                packages.add(package)
                yield from _module(folder / package, root, "package")
        kind = "module" if path.suffix == ".py" else "SQL file"
        yield from _module(path, root, kind)
        named = _python_names(path) if path.suffix == ".py" else _sql_names(path)
        where = path.relative_to(root).as_posix()
        for line, kind, name in named:
            if word := retired_part(name):
                yield Occurrence(where, line, kind, name, word)


def _module(path: Path, root: Path, kind: str) -> Iterator[Occurrence]:
    name = path.name.split(".")[0]
    word = name if name in RETIRED_MODULES else retired_part(name)
    if word is not None:
        yield Occurrence(path.relative_to(root).as_posix(), 1, kind, name, word)


def _python_names(path: Path) -> Iterator[tuple[int, str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    top = set(_top_level(tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, "class", node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node in top:
            kind = "test function" if node.name.startswith("test_") else "function"
            yield node.lineno, kind, node.name


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those below a condition, a `try` or a `with`."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)


def _sql_names(path: Path) -> Iterator[tuple[int, str, str]]:
    text = path.read_text(encoding="utf-8")
    for found in _SQL_FUNCTION.finditer(text):
        name = found[1].rsplit(".", 1)[-1].strip('"')
        yield text.count("\n", 0, found.start(1)) + 1, "SQL function", name
