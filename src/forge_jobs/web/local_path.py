"""Validates redirect targets: only paths of this site are allowed."""

from typing import Final
from urllib.parse import unquote

HOME: Final = "/"


def local_path(text: str, instead: str = HOME) -> str:
    """The text if it is a path of this site, with or without a query; else ``instead``.

    For every value from a request that ends in a redirect, a header or a link. Browsers treat a
    backslash as a slash and drop tabs and line ends, and some proxies decode a path before they
    forward it. So backslashes, control characters, empty segments and dot segments are refused,
    plain or encoded.
    """
    if not text.startswith("/") or not text.isprintable() or "\\" in text:
        return instead
    path = unquote(unquote(text.partition("?")[0].partition("#")[0]))
    segments = path.split("/")[1:]
    dotted = any(segment in (".", "..") for segment in segments)
    if dotted or "" in segments[:-1] or "\\" in path or not path.isprintable():
        return instead
    return text
