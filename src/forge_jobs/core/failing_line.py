"""Reads from a formatted traceback which line failed, for messages of one line and for groups."""

import re
from typing import NamedTuple

_FRAME = re.compile(
    r'^[ |]*File "(?P<path>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>[^\n]+))?',
    re.MULTILINE,
)
_LIBRARIES = re.compile(
    r"[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*|forge_jobs)[/\\]|^<"
)


class FailingFrame(NamedTuple):
    """Where an attempt failed: the name of the file, the line, and the function, if it is known."""

    file: str
    line: int
    function: str


def failing_frame(traceback: str | None) -> FailingFrame | None:
    """The innermost frame of the application, else the innermost one; None without a traceback."""
    found: list[tuple[str, str, str]] = [] if traceback is None else _FRAME.findall(traceback)
    if not found:
        return None
    own = [frame for frame in found if _LIBRARIES.search(frame[0]) is None]
    path, line, function = (own or found)[-1]
    return FailingFrame(re.split(r"[/\\]", path)[-1], int(line), function.strip())


def failing_line(traceback: str | None) -> str | None:
    """``app.py:12``: file and line of the failing frame; None without a traceback.

    >>> failing_line('Traceback (most recent call last):\\n  File "/srv/app.py", line 12, in send')
    'app.py:12'
    """
    frame = failing_frame(traceback)
    return None if frame is None else f"{frame.file}:{frame.line}"
