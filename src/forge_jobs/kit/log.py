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
from .log_stream import log_stream

ROOT = "forge_jobs"
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
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
    handler = _ForgeLogHandler(log_stream(sys.stderr) if stream is None else stream)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logger = logging.getLogger(ROOT)
    for previous in [one for one in logger.handlers if isinstance(one, _ForgeLogHandler)]:
        logger.removeHandler(previous)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False


class TextLines(logging.Formatter):
    """``2026-01-01T09:00:00.000Z WARNING forge_jobs.engine job failed kind=send attempts=2``."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_timestamp(record), f"{record.levelname:<7}", record.name, _message(record)]
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        return redact.text(" ".join(words) + _trace(record, self))


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
        return redact.text(json.dumps(line, default=str, ensure_ascii=False))


class _ForgeLogHandler(logging.StreamHandler[TextIO]):
    """A class of its own, so that a second ``configure`` recognises the handler of the first."""


def _timestamp(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD_FIELDS and value is not None and not name.startswith("_")
    }


def _quoted(value: object) -> str:
    text = str(value)
    if not text or not _NEEDS_QUOTES.isdisjoint(text):
        return json.dumps(text, ensure_ascii=False)
    return text


def _trace(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    if not record.exc_info:
        return ""
    return "\n" + formatter.formatException(record.exc_info)
