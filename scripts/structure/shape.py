"""Figures that are read from the files of a tree: sizes, contracts, doubled class names.

"The library" is src/forge_jobs without testing/. The gateway is an application of its own and is
left out. A line is a line of text, whether it holds code, a comment or nothing.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The original pull queue has these names, and so has the engine.
_EXEMPT_CLASSES = frozenset({("pull", "Job"), ("pull", "JobStatus")})


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest of a kind, and how many lines it has."""

    name: str = "-"
    lines: int = 0

    def __str__(self) -> str:
        return f"{self.lines} {self.name}" if self.lines else "-"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the library."""

    python_files: int
    python_lines: int
    sql_files: int
    sql_lines: int
    longest_python_file: Longest
    longest_sql_file: Longest
    longest_function: Longest


@dataclass(slots=True)
class Contract:
    """What a store has to provide for one Protocol class."""

    file: str
    methods: int = 0
    properties: int = 0


@dataclass(slots=True)
class Contracts:
    """The Protocol classes below forge_jobs/store, by name."""

    classes: dict[str, Contract] = field(default_factory=dict[str, Contract])

    @property
    def methods(self) -> int:
        return sum(one.methods for one in self.classes.values())

    @property
    def properties(self) -> int:
        return sum(one.properties for one in self.classes.values())


def sizes(package: Path) -> Sizes:
    """The sizes of the package `forge_jobs` at that folder, without testing/."""
    python = {path: _lines(path) for path in _library(package, "*.py")}
    sql = {path: _lines(path) for path in _library(package, "*.sql")}
    functions = (one for path in python for one in _functions(path, package))
    return Sizes(
        python_files=len(python),
        python_lines=sum(python.values()),
        sql_files=len(sql),
        sql_lines=sum(sql.values()),
        longest_python_file=_longest(python, package),
        longest_sql_file=_longest(sql, package),
        longest_function=max(functions, key=lambda one: one.lines, default=Longest()),
    )


def contracts(package: Path) -> Contracts:
    """Every `def` in a class that derives from Protocol; properties are counted apart."""
    found = Contracts()
    for path in sorted((package / "store").rglob("*.py")):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.ClassDef) and _is_protocol(node):
                contract = Contract(path.relative_to(package).as_posix())
                for item in node.body:
                    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                        if any(ast.unparse(one) == "property" for one in item.decorator_list):
                            contract.properties += 1
                        else:
                            contract.methods += 1
                found.classes[node.name] = contract
    return found


def doubled_classes(package: Path) -> dict[str, list[str]]:
    """Class names with more than one definition outside backends/, and where those are.

    A leading underscore makes no difference: `_Place` and `Place` are the same name.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        if inside.parts[0] == "backends":
            continue
        for node in ast.walk(_parsed(path)):
            if (
                isinstance(node, ast.ClassDef)
                and (inside.parts[0], node.name) not in _EXEMPT_CLASSES
            ):
                found[node.name.lstrip("_")].append(f"{inside.as_posix()}:{node.lineno}")
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return {name: files for name, files in ordered if len(files) > 1}


def folder_lines(folder: Path) -> int | None:
    """The lines of Python and SQL below a folder; None if there is no such folder."""
    if not folder.is_dir():
        return None
    return sum(_lines(path) for suffix in ("*.py", "*.sql") for path in folder.rglob(suffix))


def by_folder(files: set[str]) -> dict[str, int]:
    """How many of the files are in which folder of the package, for example `engine`."""
    counted = Counter("/".join(Path(file).parent.parts[1:3]) or "." for file in files)
    return dict(sorted(counted.items()))


def _library(package: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(package.rglob(pattern)):
        if path.relative_to(package).parts[0] != "testing":
            yield path


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _longest(files: dict[Path, int], package: Path) -> Longest:
    if not files:
        return Longest()
    path = max(files, key=lambda one: files[one])
    return Longest(path.relative_to(package).as_posix(), files[path])


def _functions(path: Path, package: Path) -> Iterator[Longest]:
    where = path.relative_to(package).as_posix()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Longest(f"{where}:{node.name}", lines)


def _is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    names = [base.attr if isinstance(base, ast.Attribute) else ast.unparse(base) for base in bases]
    return "Protocol" in names
