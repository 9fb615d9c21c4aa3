"""Structured logging: formatters that write each record with its fields, as text or as JSON.

The package logs under ``forge_jobs.*`` and passes fields by ``extra=``. Only ``configure`` installs
a handler: a library must not change the logging of its host application.
"""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TextIO

from . import redact
from .log_stream import log_stream

ROOT = "forge_jobs"
JOB_FIELDS = ("job_id", "kind", "queue", "attempt")
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# The attribute of a record that names the fields which its message states: text repeats none.
IN_MESSAGE = "_in_message"
_NEEDS_QUOTES = frozenset(" \"'=\n\r\t")


class FieldSource(Protocol):
    """What knows the fields of records that are made in its context."""

    def log_fields(self) -> Mapping[str, object] | None:
        """The fields at this moment; None if there are none."""
        ...


# Set once per thread or task that runs jobs, not once per job: a source knows its present job.
field_source: ContextVar[FieldSource | None] = ContextVar("forge_log_fields", default=None)


def current_job_id() -> str | None:
    """The id of the job whose handler calls this; None outside of handlers."""
    source = field_source.get()
    if source is None:
        return None
    fields = source.log_fields()
    job_id = None if fields is None else fields.get("job_id")
    return job_id if isinstance(job_id, str) else None


def configure(
    format: Literal["text", "json"] = "text",
    level: int | str = "info",
    *,
    stream: TextIO | None = None,
) -> None:
    """Write the logs of this process, the application's included, to ``stream`` (default: standard
    error). A second call replaces the handler of the first. Warnings are logged too.

    Raises ValueError for an unknown format or level.
    """
    if format not in ("text", "json"):
        raise ValueError(f"log format {format!r} is unknown: use text or json")
    number = level_number(level)
    handler = _ForgeLogHandler(log_stream(sys.stderr) if stream is None else stream)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    handler.addFilter(JobLogFilter())
    root = logging.getLogger()
    for previous in [one for one in root.handlers if isinstance(one, _ForgeLogHandler)]:
        root.removeHandler(previous)
    root.addHandler(handler)
    root.setLevel(number)
    # Also by itself: an application may set the level of the root logger.
    logging.getLogger(ROOT).setLevel(number)
    logging.captureWarnings(True)


def is_configured() -> bool:
    """Whether this process logs as ``configure`` says."""
    return any(isinstance(handler, _ForgeLogHandler) for handler in logging.getLogger().handlers)


def level_number(level: int | str) -> int:
    """The number of a level; ValueError for an unknown name."""
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if number is None:
        raise ValueError(f"log level {level!r} is unknown: use debug, info, warning or error")
    return number


def enable_package_loggers() -> None:
    """After an application was imported: ``logging.config`` disables all loggers that exist, unless
    it is told not to. The worker's own lines must stay visible."""
    known = logging.getLogger().manager.loggerDict
    for name, logger in list(known.items()):
        if isinstance(logger, logging.Logger) and (name + ".").startswith(ROOT + "."):
            logger.disabled = False


class JobLogFilter(logging.Filter):
    """Adds ``job_id``, ``kind``, ``queue`` and ``attempt`` to every record that is made while a job
    runs; outside of jobs they are None.

    ``forge worker`` uses it. In a program that configures logging itself, add it to a handler:

    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(JobLogFilter())
    >>> handler.setFormatter(logging.Formatter("%(message)s job=%(job_id)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        source = field_source.get()
        fields = None if source is None else source.log_fields()
        for name in JOB_FIELDS:
            # What the caller passed by ``extra=`` stays.
            if not hasattr(record, name):
                setattr(record, name, None if fields is None else fields.get(name))
        return True


def log_facts(logger: logging.Logger, level: int, text: str, **fields: object) -> None:
    """Log a line whose fields stand in the message too, so that any handler shows them."""
    if logger.isEnabledFor(level):
        facts = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        extra = {**fields, IN_MESSAGE: frozenset(fields)}
        logger.log(level, "%s: %s", text, redact.prose(facts), extra=extra, stacklevel=2)


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
        first, newline, rest = _message(record).rstrip().partition("\n")
        words = [_timestamp(record), f"{record.levelname:<7}", record.name, first]
        said = getattr(record, IN_MESSAGE, ())
        words += [
            f"{name}={_quoted(value)}"
            for name, value in _fields(record).items()
            if name not in said
        ]
        return " ".join(words) + newline + rest + _trace(record, self)


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
