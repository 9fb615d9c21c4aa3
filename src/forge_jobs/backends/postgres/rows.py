"""Converts rows to job records and claims, and new jobs to arguments of statements."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forge_jobs.core import ids
from forge_jobs.core.declaration import routed
from forge_jobs.core.job import (
    AttemptError,
    ClaimedJob,
    Enqueued,
    JobRecord,
    LaneOrder,
    NewJob,
    Successor,
    UniqueWhile,
    shown_progress,
)
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import ClaimedSteps, StepKind, StepRecord
from forge_jobs.core.text import storable as storable

from .connection.driver import Row

MAX_KEY: Final = (1 << 63) - 1
_STATES: Final = {str(status): status for status in JobStatus}
_successor: Final = msgspec.json.Decoder(Successor)
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class _StoredError(msgspec.Struct, frozen=True, array_like=True):
    at: int
    attempt: int
    message: str
    started_at: int | None = None
    due_at: int | None = None
    owner: int | None = None
    group: str | None = None


class StoredStep(msgspec.Struct, frozen=True, array_like=True):
    """A step as ``step_json_v1`` makes it."""

    name: str
    kind: StepKind
    epoch: int
    began_at: int
    ended_at: int
    value: str | None
    fingerprint: int | None


class _StoredSteps(msgspec.Struct, frozen=True):
    """What ``claimed_steps_v1`` makes."""

    failed_runs: int
    more: bool
    steps: tuple[StoredStep, ...]


_stored_steps: Final = msgspec.json.Decoder(_StoredSteps)
_stored_errors: Final = msgspec.json.Decoder(tuple[_StoredError, ...])


def claimed(row: Row) -> ClaimedJob:
    """A claim from one row of an exchange; the columns are in the order of the fields."""
    (
        key, epoch, kind, queue, payload, attempts, max_attempts, enqueued_at, run_at, started,
        priority, crashes, timeout_s, throttled_since, missing_since, tags, limit_key, trace,
        options, steps,
    ) = row  # fmt: skip
    return ClaimedJob(
        key, epoch, kind, queue, payload, attempts, max_attempts, enqueued_at, run_at, started,
        priority, crashes, timeout_s, throttled_since, missing_since,
        () if tags is None else tuple(tags), limit_key, trace,
        None if options is None else _decode(options),
        None if steps is None else _claimed_steps(steps),
    )  # fmt: skip


def step_record(stored: StoredStep) -> StepRecord:
    """A step from its JSON."""
    value = None if stored.value is None else stored.value.encode()
    return StepRecord(
        stored.name, stored.kind, stored.epoch, stored.began_at, stored.ended_at, value,
        stored.fingerprint, 0 if value is None else len(value),
    )  # fmt: skip


def _claimed_steps(text: str) -> ClaimedSteps:
    stored = _stored_steps.decode(text)
    return ClaimedSteps(tuple(map(step_record, stored.steps)), stored.more, stored.failed_runs)


def record(row: Row, tag: int) -> JobRecord:
    """A job with all its fields, from a row of the statement ``job``."""
    status = _STATES[row["status"]]
    errors = row["errors"]
    on_dead, order, options = row["on_dead"], row["lane_order"], row["options"]
    return JobRecord(
        key=row["id"],
        id=ids.job_id(row["id"], row["enqueued_at"], tag),
        kind=row["kind"],
        queue=row["queue"],
        status=status,
        payload=row["payload"] if row["body"] is None else row["body"],
        priority=row["priority"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        epoch=row["epoch"],
        enqueued_at=row["enqueued_at"],
        run_at=row["run_at"],
        owner=row["owner"] if status is JobStatus.RUNNING else None,
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        expires_at=row["expires_at"],
        timeout_s=row["timeout_s"],
        last_error=row["last_error"],
        errors=() if errors is None else _read_errors(errors),
        result=row["result"],
        progress=shown_progress(status, row["progress"]),
        progress_note=row["progress_note"],
        tags=tuple(row["tags"] or ()),
        dedupe_key=row["dedupe_key"],
        dedupe_for_s=row["dedupe_for_s"],
        unique_while=UniqueWhile.WAITING if row["unique_waiting"] else UniqueWhile.LIVE,
        limit_key=row["limit_key"],
        lane=row["lane"],
        order=LaneOrder.NONE if order is None else LaneOrder(order),
        limit_bucket=row["limit_bucket"],
        crashes=row["crashes"],
        throttles=row["throttles"],
        throttled_since=row["throttled_since"],
        missing_since=row["missing_since"],
        cancel_requested_at=row["cancel_requested_at"],
        on_dead=None if on_dead is None else _successor.decode(on_dead),
        trace=row["trace"],
        options=None if options is None else _decode(options),
        has_steps=bool(row["steps"]),
        failed_runs=row["failed_runs"] or 0,
        last_owner=row["owner"],
    )


def status_of(text: str) -> JobStatus:
    """The state of that name."""
    return _STATES[text]


def successor_of(text: str) -> Successor:
    """The successor in the stored ``on_dead`` of a job."""
    return _successor.decode(text)


def enqueued(row: Row, tag: int) -> Enqueued:
    """The reply for one row of ``forge.enqueue``: ordinal, key, instant, state, duplicate."""
    return Enqueued(row[1], ids.job_id(row[1], row[2], tag), row[4], _STATES[row[3]])


def declared_values(job: NewJob) -> tuple[Any, ...]:
    """What a task declares, for the statement ``declare``."""
    return (
        job.priority,
        job.max_attempts,
        job.timeout_s,
        list(job.tags) or None,
        job.limit_key,
        job.lane,
        None if job.order is LaneOrder.NONE else job.order.value,
        job.kind if job.track else None,
        None if job.on_dead is None else as_json(job.on_dead),
        None if job.options is None else as_json(job.options),
    )


def routed_options(text: str) -> str | None:
    """Stored rare options without the mark ``unrouted``."""
    left = routed(_decode(text))
    return None if left is None else as_json(left)


def columns(jobs: Sequence[NewJob]) -> list[Any]:
    """The arrays for ``forge.enqueue``; a column that no job sets is None."""
    return [
        [job.kind for job in jobs],
        [job.queue for job in jobs],
        [job.payload for job in jobs],
        [job.priority for job in jobs],
        [job.max_attempts for job in jobs],
        _if_any([job.delay_s or None for job in jobs]),
        _if_any([job.run_at for job in jobs]),
        _if_any([job.expires_s for job in jobs]),
        _if_any([job.expires_at for job in jobs]),
        _if_any([job.timeout_s for job in jobs]),
        _if_any([job.dedupe_key for job in jobs]),
        _if_any([job.dedupe_for_s for job in jobs]),
        _if_any([job.unique_while is UniqueWhile.WAITING or None for job in jobs]),
        _if_any([",".join(job.tags) if job.tags else None for job in jobs]),
        _if_any([job.limit_key for job in jobs]),
        _if_any([job.lane for job in jobs]),
        _if_any([None if job.order is LaneOrder.NONE else job.order.value for job in jobs]),
        _if_any([job.hold or None for job in jobs]),
        _if_any([None if job.on_dead is None else as_json(job.on_dead) for job in jobs]),
        _if_any([job.trace for job in jobs]),
        _if_any([job.track or None for job in jobs]),
        _if_any([None if job.options is None else as_json(job.options) for job in jobs]),
    ]


def plain(job: NewJob) -> dict[str, Any]:
    """A job for ``forge.enqueue_json``; fields that are not set are left out."""
    fields: dict[str, Any] = {
        "kind": job.kind,
        "queue": job.queue,
        "payload": job.payload.decode(),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "delay_s": job.delay_s or None,
        "run_at": job.run_at,
        "expires_s": job.expires_s,
        "expires_at": job.expires_at,
        "timeout_s": job.timeout_s,
        "dedupe_key": job.dedupe_key,
        "dedupe_for_s": job.dedupe_for_s,
        "waiting": job.unique_while is UniqueWhile.WAITING or None,
        "tags": ",".join(job.tags) or None,
        "limit_key": job.limit_key,
        "lane": job.lane,
        "lane_order": None if job.order is LaneOrder.NONE else job.order.value,
        "hold": job.hold or None,
        "on_dead": None if job.on_dead is None else as_json(job.on_dead),
        "trace": job.trace,
        "track": job.track or None,
        "options": None if job.options is None else as_json(job.options),
    }
    return {name: value for name, value in fields.items() if value is not None}


def as_json(value: object) -> str:
    """JSON text for a parameter of type json, jsonb or text."""
    return msgspec.json.encode(value).decode()


def _if_any(column: list[Any]) -> list[Any] | None:
    for value in column:
        if value is not None:
            return column
    return None


def _read_errors(text: str) -> tuple[AttemptError, ...]:
    stored = _stored_errors.decode(text)
    return tuple(
        AttemptError(
            error.at, error.attempt, error.message, started_at=error.started_at,
            due_at=error.due_at, owner=error.owner, group=error.group,
        )
        for error in stored
    )  # fmt: skip
