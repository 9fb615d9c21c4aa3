"""Docstrings, tables and code blocks as Markdown."""

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import Final

_LITERAL: Final = re.compile(r"``(.+?)``", re.S)
_TAG: Final = re.compile(r"<(?=[A-Za-z/!])")


def docstring(text: str | None) -> str:
    """A docstring as Markdown: paragraphs, indented and doctest blocks as code."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", cleandoc(text or "")):
        code = all(line.startswith((" ", ">>>")) or not line for line in paragraph.splitlines())
        if paragraph.startswith(">>>") or (code and paragraph.strip()):
            shown = cleandoc("\n" + paragraph)
            if parts and parts[-1].endswith("\n```") and parts[-1].startswith("```"):
                parts[-1] = parts[-1].removesuffix("\n```") + f"\n\n{shown}\n```"
            else:
                parts.append(f"```python\n{shown}\n```")
        elif paragraph.strip() not in ("", "::"):
            parts.append(prose(re.sub(r"::$", ":", paragraph)))
    return "\n\n".join(parts)


def prose(text: str) -> str:
    """A paragraph of a docstring on one line."""
    joined = _LITERAL.sub(r"`\1`", " ".join(text.split()))
    spans = re.split(r"(`[^`]*`)", joined)
    return "".join(one if one.startswith("`") else _escaped(one) for one in spans)


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring."""
    return prose(re.split(r"\n\s*\n", cleandoc(text or ""))[0])


def code(text: object) -> str:
    """Inline code, also in a cell of a table."""
    return f"`{text}`".replace("|", "\\|") if str(text) else ""


def block(text: str, language: str = "python") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def document(*parts: str) -> str:
    """Blocks with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _escaped(text: str) -> str:
    return _TAG.sub(r"\\<", text).replace("*", "\\*").replace("[", "\\[").replace("|", "\\|")
