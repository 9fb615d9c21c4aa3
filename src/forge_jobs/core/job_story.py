"""The story of a job: the spans of time from its enqueue to its end, from what is stored of it."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from .instant import Instant
from .job import AttemptError, JobRecord
from .status import JobStatus, is_terminal


class SpanKind(StrEnum):
    """What a job did in a span. ``waiting``: it was due, and had not started. ``suspended``: it ran
    steps, slept and waited."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    HELD = "held"
    ATTEMPT = "attempt"
    BACK_OFF = "back-off"
    SUSPENDED = "suspended"


class Span(Struct, frozen=True, kw_only=True):
    """One span. ``ended_at`` None: it lasts. ``attempt`` and ``owner`` are those of an attempt,
    ``error`` what ended it if it failed. ``until``: when a span that lasts is due to end."""

    kind: SpanKind
    began_at: Instant
    ended_at: Instant | None
    attempt: int | None = None
    owner: int | None = None
    error: AttemptError | None = None
    until: Instant | None = None


def spans(record: JobRecord) -> list[Span]:
    """The spans of a job, oldest first. Only failed attempts and the last one are stored: a run
    that gave its attempt back is part of the wait around it."""
    found: list[Span] = []
    at = record.enqueued_at
    for error in record.errors:
        started_at = error.started_at
        if started_at is None or started_at < at:
            continue
        found += _before(at, error.due_at or at, started_at, _pause(record, failed=bool(found)))
        found.append(
            Span(
                kind=SpanKind.ATTEMPT,
                began_at=started_at,
                ended_at=error.at,
                attempt=error.attempt,
                owner=error.owner,
                error=error,
            )
        )
        at = error.at
    return [*found, *_last(record, at, failed=bool(found))]


def _last(record: JobRecord, at: Instant, *, failed: bool) -> Iterator[Span]:
    """What came after the last failed attempt."""
    started_at, run_at = record.started_at, record.run_at
    if started_at is not None and started_at >= at and _has_run(record):
        pause = _pause(record, failed=failed)
        yield from _before(at, min(run_at, started_at), started_at, pause)
        yield Span(
            kind=SpanKind.ATTEMPT,
            began_at=started_at,
            ended_at=record.finished_at if is_terminal(record.status) else None,
            attempt=record.attempts,
            owner=record.last_owner,
        )
        return
    if is_terminal(record.status):
        if record.finished_at is not None and record.finished_at > at:
            yield Span(kind=SpanKind.WAITING, began_at=at, ended_at=record.finished_at)
        return
    match record.status:
        case JobStatus.SCHEDULED | JobStatus.FAILED:
            pause = _pause(record, failed=failed)
            yield Span(kind=pause, began_at=at, ended_at=None, until=run_at)
        case JobStatus.SUSPENDED:
            began_at = at if started_at is None else max(at, started_at)
            yield Span(kind=SpanKind.SUSPENDED, began_at=began_at, ended_at=None, until=run_at)
        case _:
            kind = SpanKind.HELD if record.status is JobStatus.HELD else SpanKind.WAITING
            due_at = max(at, run_at)
            yield from _before(at, due_at, due_at, _pause(record, failed=failed))
            yield Span(kind=kind, began_at=due_at, ended_at=None)


def _has_run(record: JobRecord) -> bool:
    """Whether ``started_at`` belongs to a run that lasts, or that ended the job."""
    return record.status is JobStatus.RUNNING or is_terminal(record.status)


def _pause(record: JobRecord, *, failed: bool) -> SpanKind:
    """What a job did until it was due. One with steps ran before, to a sleep or a wait."""
    if failed:
        return SpanKind.BACK_OFF
    return SpanKind.SUSPENDED if record.has_steps else SpanKind.SCHEDULED


def _before(at: Instant, due_at: Instant, started_at: Instant, pause: SpanKind) -> Iterator[Span]:
    """The time until an attempt: until it was due, and until it started."""
    due_at = min(max(at, due_at), started_at)
    if due_at > at:
        yield Span(kind=pause, began_at=at, ended_at=due_at)
    if started_at > due_at:
        yield Span(kind=SpanKind.WAITING, began_at=due_at, ended_at=started_at)
