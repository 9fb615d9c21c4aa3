"""Keeps tokens and secrets out of every log line and error text.

The token is part of each Bot API address, and HTTP clients log addresses: so the finished line is
searched, for the configured values and for whatever looks like a token.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TextIO

HIDDEN: Final = "***"
_TOKEN: Final = re.compile(r"\d{1,20}(?::|%3[aA])[A-Za-z0-9_-]{30,}")
_SHORTEST: Final = 8


class Mask:
    """Replaces what must not be shown."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({text for text in secrets if len(text) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _TOKEN.sub(HIDDEN, text)


class _Lines(logging.Formatter):
    def __init__(self, mask: Mask, *, as_json: bool) -> None:
        super().__init__()
        self._mask = mask
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if not self._as_json:
            return self._mask(f"{moment} {record.levelname:<7} {record.name} {message}")
        line = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(message),
        }
        return json.dumps(line, ensure_ascii=False)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second call finds it."""


def log_to(stream: TextIO | None, mask: Mask, *, level: str, as_json: bool) -> None:
    """Send all logs of the process to ``stream`` (standard error), masked."""
    root = logging.getLogger()
    for known in [known for known in root.handlers if isinstance(known, _Handler)]:
        root.removeHandler(known)
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(_Lines(mask, as_json=as_json))
    root.addHandler(handler)
    root.setLevel(level.upper())
