"""Structured logs: text for people, JSON for machines, the same fields in both."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from forge_jobs.core.outcome import Dead
from forge_jobs.engine.running.context import Context
from forge_jobs.kit import log
from tests.engine.rig import Rig


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    loggers = [logging.getLogger("forge_jobs"), logging.getLogger()]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)
    logging.captureWarnings(False)


def _logger() -> logging.Logger:
    return logging.getLogger("forge_jobs.test")


def test_text_lines_show_their_fields() -> None:
    stream = io.StringIO()
    log.configure("text", "info", stream=stream)
    _logger().warning(
        "job failed", extra={"kind": "send", "attempts": 2, "error": "no such city", "none": None}
    )
    _logger().debug("not shown")
    line = stream.getvalue()
    assert line.count("\n") == 1
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z")
    assert rest == (
        'WARNING forge_jobs.test job failed kind=send attempts=2 error="no such city"\n'
    )


def test_json_lines_are_objects() -> None:
    stream = io.StringIO()
    log.configure("json", "debug", stream=stream)
    _logger().info("hello %s", "world", extra={"kind": "send", "odd": object})
    try:
        raise ValueError("boom")
    except ValueError:
        _logger().exception("trouble")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "hello world"
    assert (first["level"], first["logger"], first["kind"]) == ("info", "forge_jobs.test", "send")
    assert "ValueError: boom" in second["trace"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_passwords_in_addresses_are_hidden(format: Any) -> None:
    stream = io.StringIO()
    log.configure(format, stream=stream)
    _logger().error("cannot open postgres://me:hunter2@host/db", extra={"url": "redis://:pw@h"})
    assert "hunter2" not in stream.getvalue()
    assert ":pw@" not in stream.getvalue()
    assert "postgres://me:***@host/db" in stream.getvalue()


def test_a_second_call_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    log.configure("text", stream=first)
    log.configure("json", logging.WARNING, stream=second)
    _logger().warning("x")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "x"


def test_unknown_formats_and_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="text or json"):
        log.configure("xml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="debug, info"):
        log.configure("text", "loud")


async def test_a_retry_warns_and_a_death_is_an_error(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(ctx: Context, given: Any) -> None:
        raise ValueError("x") if given["fails"] else Dead("y")

    rig.on("work", body)
    async with rig.working():
        failed = await rig.runs("work", {"fails": True})
        dead = await rig.runs("work", {"fails": False})
    entries: dict[str, Any] = {
        entry.levelname: entry for entry in caplog.records if entry.name == "forge_jobs.engine"
    }
    warning, error = entries["WARNING"], entries["ERROR"]
    assert (warning.job_id, warning.kind, warning.queue) == (failed.id, "work", "q")
    assert (warning.attempts, warning.error) == (1, "ValueError: x")
    assert 13 < warning.retry_in < 17
    assert (error.job_id, error.error, error.retry_in) == (dead.id, "y", None)
