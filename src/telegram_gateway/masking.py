"""Removes tokens and secrets from log lines and error texts.

Every Bot API URL contains the token, and HTTP clients log URLs. So the formatted line is searched
for the configured values and for anything that looks like a token.
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
_MIN_SECRET: Final = 8


class Mask:
    """Replaces secrets in a text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted(
            {text for text in secrets if len(text) >= _MIN_SECRET}, key=len, reverse=True
        )
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """Return the text with every secret replaced by ``***``."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _TOKEN.sub(HIDDEN, text)


class _MaskedFormatter(logging.Formatter):
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


class _MaskedLogHandler(logging.StreamHandler[TextIO]):
    """A class of its own, so that a second call of configure_logging finds and replaces it."""


def configure_logging(stream: TextIO | None, mask: Mask, *, level: str, as_json: bool) -> None:
    """Write all logs of the process to ``stream`` (default: standard error), masked."""
    root = logging.getLogger()
    for former in [one for one in root.handlers if isinstance(one, _MaskedLogHandler)]:
        root.removeHandler(former)
    handler = _MaskedLogHandler(stream or sys.stderr)
    handler.setFormatter(_MaskedFormatter(mask, as_json=as_json))
    root.addHandler(handler)
    root.setLevel(level.upper())
