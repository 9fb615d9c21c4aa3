"""The sections of the site: the headings of docs/README.md, and the pages that each one names."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INDEX: Final = Path("docs/README.md")
_HEADING: Final = re.compile(r"^## (.+)$")
_ENTRY: Final = re.compile(r"^- ")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")


class BadNavigation(Exception):
    """A page is in no section, or in two; the text says what to add or remove."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the navigation: its label, and its path in the repository."""

    label: str
    path: Path


def sections(root: Path) -> dict[str, list[Entry]]:
    """The pages of each section, in order. BadNavigation if one of docs/ is in none or in two."""
    found: dict[str, list[Entry]] = {}
    section = ""
    for line in (root / INDEX).read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            section = heading.group(1)
            found[section] = []
        elif section and _ENTRY.match(line):
            head = line.partition("): ")[0] + ")"
            for label, target in _LINK.findall(head):
                path = (root / INDEX.parent / target).resolve().relative_to(root.resolve())
                found[section].append(Entry(label, path))
    _check(root, [entry.path for entries in found.values() for entry in entries])
    return found


def decisions(root: Path) -> list[Path]:
    """The records of decisions, in the order of their numbers."""
    return sorted(path.relative_to(root) for path in (root / "docs" / "decisions").glob("0*.md"))


def pages(root: Path) -> list[Path]:
    """Every page of docs/."""
    return sorted(path.relative_to(root) for path in (root / "docs").rglob("*.md"))


def _check(root: Path, named: list[Path]) -> None:
    twice = sorted({path.as_posix() for path in named if named.count(path) > 1})
    known = {INDEX, *named, *decisions(root)}
    missing = sorted(path.as_posix() for path in pages(root) if path not in known)
    problems = [f"{path} is in two sections of {INDEX}: keep one line" for path in twice]
    problems += [
        f"{path} is in no section of {INDEX}: add a line such as - [Label](file.md): what it is for"
        for path in missing
    ]
    if problems:
        raise BadNavigation("\n".join(problems))
