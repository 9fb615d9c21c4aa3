"""Builds the request for a copy of a stored job, with its own payload or an edited one."""

from msgspec.structs import replace

from forge_jobs.core import payload as json_payload
from forge_jobs.core.job import JobRecord, NewJob
from forge_jobs.core.parent import Via, with_parent, without_parent

from .queries import restore_redacted


def duplicate_request_with(record: JobRecord, payload: object) -> NewJob:
    """A request like ``duplicate_request`` with another payload. Fields of it that still hold the
    redacted text get the original value back."""
    restored = restore_redacted(payload, json_payload.decode(record.payload))
    return replace(duplicate_request(record), payload=json_payload.encode(restored))


def duplicate_request(record: JobRecord) -> NewJob:
    """A request with the job's fields, linked to it, without its dedupe key, which it holds."""
    copy = NewJob(
        kind=record.kind,
        queue=record.queue,
        payload=record.payload,
        priority=record.priority,
        max_attempts=record.max_attempts,
        timeout_s=record.timeout_s,
        tags=record.tags,
        limit_key=record.limit_key,
        lane=record.lane,
        order=record.order,
        on_dead=record.on_dead,
        options=without_parent(record.options),
    )
    return with_parent(copy, record.id, Via.COPY)
