"""Structured logging: formatters that write each record with its fields, as text or as JSON.

The package logs under ``forge_jobs.*`` and passes fields by ``extra=``. Only ``configure`` installs
a handler: a library must not change the logging of its host application.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from . import redact

ROOT = "forge_jobs"
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# The attribute of a record that names the fields which its message states: text repeats none.
IN_MESSAGE = "_in_message"
_NEEDS_QUOTES = frozenset(" \"'=\n\r\t")


def configure(
    format: Literal["text", "json"] = "text",
    level: int | str = "info",
    *,
    stream: TextIO | None = None,
) -> None:
    """Write the package's logs to ``stream`` (default: standard error). A second call replaces the
    handler of the first.

    Raises ValueError for an unknown format or level.
    """
    if format not in ("text", "json"):
        raise ValueError(f"log format {format!r} is unknown: use text or json")
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if number is None:
        raise ValueError(f"log level {level!r} is unknown: use debug, info, warning or error")
    handler = _ForgeLogHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logger = logging.getLogger(ROOT)
    for previous in [one for one in logger.handlers if isinstance(one, _ForgeLogHandler)]:
        logger.removeHandler(previous)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False


def log_with_traceback(
    logger: logging.Logger,
    level: int,
    message: str,
    fields: Mapping[str, object],
    traceback: str | None,
) -> None:
    """Log a line with a traceback that was formatted before, where its exception was caught. Every
    formatter shows it, also that of a program that configures logging itself."""
    if logger.isEnabledFor(level):
        record = logger.makeRecord(
            logger.name, level, __file__, 0, "%s", (message,), None, extra=fields
        )
        record.exc_text = traceback
        logger.handle(record)


class TextLines(logging.Formatter):
    """``2026-01-01T09:00:00.000Z WARNING forge_jobs.engine job failed kind=send attempts=2``."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_timestamp(record), f"{record.levelname:<7}", record.name, _message(record)]
        said = getattr(record, IN_MESSAGE, ())
        words += [
            f"{name}={_quoted(value)}"
            for name, value in _fields(record).items()
            if name not in said
        ]
        return " ".join(words) + _trace(record, self)


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_fields(record),
        }
        trace = _trace(record, self).strip()
        if trace:
            line["trace"] = trace
        return json.dumps(line, default=_redacted_text, ensure_ascii=False)


class _ForgeLogHandler(logging.StreamHandler[TextIO]):
    """A class of its own, so that a second ``configure`` recognises the handler of the first."""


def _timestamp(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return redact.prose(record.getMessage())
    except Exception:
        return redact.prose(str(record.msg))


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    """The fields of ``extra=``, with secrets hidden by their names and inside texts."""
    return redact.value(
        {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD_FIELDS and value is not None and not name.startswith("_")
        }
    )


def _redacted_text(value: object) -> str:
    return redact.prose(str(value))


def _quoted(value: object) -> str:
    # an object that is no JSON value has not been redacted yet
    text = value if isinstance(value, str) else _redacted_text(value)
    if not text or not _NEEDS_QUOTES.isdisjoint(text):
        return json.dumps(text, ensure_ascii=False)
    return text


def _trace(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    if record.exc_info:
        return "\n" + redact.prose(formatter.formatException(record.exc_info))
    return "\n" + record.exc_text if record.exc_text else ""
