"""What the pages lack for people who use a keyboard or a screen reader, added after Sphinx."""

import re
from pathlib import Path
from typing import Final

_CHANGES: Final = (
    # Two landmarks of one kind need names.
    (re.compile(r'<aside (?=class="sidebar-drawer)'), '<aside aria-label="Pages" '),
    (re.compile(r'<aside (?=class="toc-drawer)'), '<aside aria-label="On this page" '),
    # What scrolls must be reachable by the keyboard.
    (re.compile(r"<pre>"), '<pre tabindex="0">'),
    (re.compile(r'<div class="table-wrapper'), '<div tabindex="0" class="table-wrapper'),
    # A header without words is none.
    (re.compile(r"<th class=\"head\"><p></p></th>"), '<td class="head"></td>'),
    # The page of search results has no heading of the first level.
    (re.compile(r'<div id="search-results">'), '<h1>Search</h1><div id="search-results">'),
)


def finish(folder: Path) -> None:
    """Change the pages of a site that was just built."""
    for path in folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        changed = text
        for pattern, replacement in _CHANGES:
            changed = pattern.sub(replacement, changed)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
