"""JSON as HTML with its parts marked, so that style sheets can colour them."""

import re
from typing import Final

import msgspec
from markupsafe import Markup, escape

_TOKEN: Final = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=\s*:)'
    r'|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<word>true|false|null)"
)
# Longer ones are shown plain: so many elements would make the page slow.
MAX_MARKED_CHARS: Final = 20_000


def marked_json(value: object) -> Markup:
    """Indented JSON; keys, texts, numbers and words in elements of a class of their own."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > MAX_MARKED_CHARS:
        return escape(text)
    parts: list[str] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(str(escape(text[at : token.start()])))
        parts.append(f'<span class="json-{token.lastgroup}">{escape(token.group())}</span>')
        at = token.end()
    parts.append(str(escape(text[at:])))
    return Markup("".join(parts))
