"""Where a person may be sent: paths of this site alone."""

from typing import Final
from urllib.parse import unquote

FIRST_PAGE: Final = "/"


def local_path(text: str, instead: str = FIRST_PAGE) -> str:
    """The text if it is a path of this site, with or without a query; else ``instead``.

    For everything that comes from a request and ends in a redirect, a header or a link. Browsers
    take a backslash for a slash and drop tabs and line ends, and some proxies decode a path before
    they pass it on: so neither may be in it, plain or encoded, nor an empty or a dotted segment.
    """
    if not text.startswith("/") or not text.isprintable() or "\\" in text:
        return instead
    path = unquote(unquote(text.partition("?")[0].partition("#")[0]))
    segments = path.split("/")[1:]
    dotted = any(segment in (".", "..") for segment in segments)
    if dotted or "" in segments[:-1] or "\\" in path or not path.isprintable():
        return instead
    return text
