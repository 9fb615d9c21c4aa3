"""Links from the names in a reference page to where they are described."""

import re
from collections.abc import Mapping
from typing import Final

from forge_jobs.cli.error_help import explanations

_HEADING: Final = re.compile(r"^## (\w+)$", re.M)
_NAME: Final = re.compile(r"(?<![\[\w])`([A-Z]\w+)`(?!\])")
_PAGE: Final = re.compile(r"\bdocs/([\w-]+\.md)")


def targets(pages: Mapping[str, str]) -> dict[str, str]:
    """Where each public name is described: page and anchor."""
    found = {
        name: f"{file}#{name.lower()}"
        for file, text in pages.items()
        if file in ("python.md", "lower-level.md")
        for name in _HEADING.findall(text)
    }
    errors = {one.error: f"errors.md#{one.code}" for one in explanations().values() if one.error}
    return {**errors, **found}


def with_links(page: str, text: str, targets: Mapping[str, str]) -> str:
    """The page with names in its prose linked, except in the section that describes them."""
    section = ""
    in_code = False
    lines: list[str] = []

    def linked(match: re.Match[str]) -> str:
        name = match.group(1)
        target = targets.get(name)
        if target is None or name == section:
            return match.group()
        return f"[`{name}`]({target.removeprefix(page)})"

    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif line.startswith("#"):
            section = line.lstrip("# ").partition(".")[0]
        elif not in_code:
            line = _PAGE.sub(r"[\1](../\1)", _NAME.sub(linked, line))
        lines.append(line)
    return "\n".join(lines)
