"""Cuts the changelog for a release: what is under Unreleased becomes the section of the version.

    python -m scripts.release.changelog 2030-01-31

The version is that of pyproject.toml. Unreleased stays, empty, for what comes next.
"""

import re
import sys
from datetime import date

from .project import ROOT, version

CHANGELOG = ROOT / "CHANGELOG.md"
_UNRELEASED = "## [Unreleased]\n"
_SECTION = re.compile(r"^## \[(?P<version>[^]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.M)


class CannotCut(Exception):
    """The changelog cannot be cut; the text says why and what to do."""


def cut(text: str, released: str, day: str) -> str:
    """The changelog with the section of a version, made of what was under Unreleased."""
    try:
        date.fromisoformat(day)
    except ValueError:
        raise CannotCut(f"{day!r} is no date: write it as 2030-01-31") from None
    if text.count(_UNRELEASED) != 1:
        raise CannotCut(f"CHANGELOG.md needs one line {_UNRELEASED.strip()!r}")
    if released in sections(text):
        raise CannotCut(f"CHANGELOG.md has a section {released} already: raise the version first")
    start, rest = text.split(_UNRELEASED)
    following = _SECTION.search(rest)
    added = rest[: following.start()] if following else rest
    if "- " not in added:
        raise CannotCut("nothing is under Unreleased: there is nothing to release")
    older = rest[following.start() :] if following else ""
    made = f"{start}{_UNRELEASED}\n## [{released}] - {day}\n\n{added.strip()}\n"
    return f"{made}\n{older}" if older else made


def sections(text: str) -> dict[str, str | None]:
    """Version → date of every section; Unreleased has none."""
    return {found["version"]: found["date"] for found in _SECTION.finditer(text)}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m scripts.release.changelog DATE", file=sys.stderr)
        return 2
    try:
        text = cut(CHANGELOG.read_text(encoding="utf-8"), version(), arguments[0])
    except CannotCut as error:
        print(error, file=sys.stderr)
        return 1
    CHANGELOG.write_text(text, encoding="utf-8")
    print(f"CHANGELOG.md has a section {version()} - {arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
