"""Tracebacks of failed attempts: stored apart from jobs, added to a record when one job is read.

A traceback is up to 16 KiB, so that 32 of them would make a row of half a megabyte. In a table of
their own they cost claims and lists nothing.
"""

from collections.abc import Iterable

from msgspec import Struct, structs

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import JobRecord


class StoredTraceback(Struct, frozen=True):
    """The traceback of one failed attempt; ``at`` and ``attempt`` are those of its error."""

    at: Instant
    attempt: int
    text: str


def with_tracebacks(record: JobRecord, stored: Iterable[StoredTraceback]) -> JobRecord:
    """The record with tracebacks in its errors; ``stored`` oldest first."""
    waiting: dict[tuple[Instant, int], list[str]] = {}
    for one in stored:
        waiting.setdefault((one.at, one.attempt), []).append(one.text)
    if not waiting:
        return record
    errors = tuple(
        structs.replace(error, traceback=texts.pop(0))
        if (texts := waiting.get((error.at, error.attempt)))
        else error
        for error in record.errors
    )
    return structs.replace(record, errors=errors)
