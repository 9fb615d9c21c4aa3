"""Reads from a formatted traceback which line failed, for messages of one line."""

import re

_FRAME = re.compile(r'^[ |]*File "(?P<path>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
_LIBRARIES = re.compile(
    r"[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*|forge_jobs)[/\\]|^<"
)


def failing_line(traceback: str | None) -> str | None:
    """``app.py:12``: the innermost frame of the application, else the innermost one; None without
    a traceback.

    >>> failing_line('Traceback (most recent call last):\\n  File "/srv/app.py", line 12, in send')
    'app.py:12'
    """
    found = [] if traceback is None else _FRAME.findall(traceback)
    if not found:
        return None
    own = [frame for frame in found if _LIBRARIES.search(frame[0]) is None]
    path, line = (own or found)[-1]
    name = re.split(r"[/\\]", path)[-1]
    return f"{name}:{line}"
