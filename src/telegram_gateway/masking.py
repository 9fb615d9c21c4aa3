"""Formats log lines, and removes tokens and secrets from them and from error texts.

Every Bot API URL contains the token, and HTTP clients log URLs. So the formatted line is searched
for the configured values and for anything that looks like a token.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

HIDDEN: Final = "***"
_TOKEN: Final = re.compile(r"\d{1,20}(?::|%3[aA])[A-Za-z0-9_-]{30,}")
_MIN_SECRET: Final = 8
# At INFO they log every request, or what the gateway says itself.
_QUIET_LOGGERS: Final = ("httpx2", "httpcore2", "uvicorn.error")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_OWN_LOGGERS: Final = "telegram_gateway"
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class Mask:
    """Replaces secrets in a text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {form for text in secrets if len(text) >= _MIN_SECRET for form in _forms(text)}
        known = sorted(spellings, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """Return the text with every secret replaced by ``***``."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _TOKEN.sub(HIDDEN, text)


def _forms(secret: str) -> tuple[str, ...]:
    """The secret, and how it is written in JSON and in the repr of an exception or a list."""
    return secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]


class _MaskedFormatter(logging.Formatter):
    def __init__(self, mask: Mask, *, as_json: bool) -> None:
        super().__init__()
        self._mask = mask
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        moment = time.replace("+00:00", "Z")
        message = self._mask(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._as_json:
            line: dict[str, Any] = {
                "time": moment,
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": message,
                **{
                    field: self._mask(value) if isinstance(value, str) else value
                    for field, value in _fields(record).items()
                },
            }
            if trace:
                line["trace"] = self._mask(trace)
            # Once more, for values that are no strings.
            return self._mask(json.dumps(line, ensure_ascii=False, default=str))
        name = "gateway" if record.name.startswith(_OWN_LOGGERS) else record.name
        words = [f"{moment} {record.levelname:<7} {name}: {message}"]
        words += [
            f"{field}={shown}"
            for field, value in _fields(record).items()
            if not _contains(message, shown := str(value))
        ]
        # One record is one line: a text of somebody else must not look like another record.
        text = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], " ".join(words))
        return self._mask(text + (f"\n{trace}" if trace else ""))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as ``extra``, without empty values."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD_FIELDS and value is not None and not name.startswith("_")
    }


def _contains(message: str, text: str) -> bool:
    """Whether the message contains the text as a whole word, so that it need not be repeated."""
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", message) is not None


class _MaskedLogHandler(logging.StreamHandler[TextIO]):
    """A class of its own, so that a second call of configure_logging finds and replaces it."""


def configure_logging(
    stream: TextIO | None,
    mask: Mask,
    *,
    level: str,
    as_json: bool,
    reported: logging.Filter | None = None,
) -> None:
    """Write all logs of the process to ``stream`` (default: standard error), masked. ``reported``
    drops lines that repeat others."""
    root = logging.getLogger()
    for former in [one for one in root.handlers if isinstance(one, _MaskedLogHandler)]:
        root.removeHandler(former)
    handler = _MaskedLogHandler(stream or sys.stderr)
    handler.setFormatter(_MaskedFormatter(mask, as_json=as_json))
    if reported is not None:
        handler.addFilter(reported)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "WARNING")
