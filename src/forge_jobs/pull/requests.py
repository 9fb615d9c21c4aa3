"""Checks the arguments of a pull queue: types, leases, ids, and the request for a new job."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from forge_jobs.client.options import job_fields
from forge_jobs.core import names, payload
from forge_jobs.core.errors import BadName, BadOption
from forge_jobs.core.instant import Duration, from_datetime, seconds
from forge_jobs.core.job import NewJob

DEFAULT_LEASE: Final = "5m"
DEFAULT_MAX_ATTEMPTS: Final = 3
_MIN_LEASE_S: Final = 1.0


def new_job(
    queue: str,
    kind: object,
    body: object,
    *,
    priority: int,
    scheduled_at: datetime | None,
    max_attempts: int,
    dedupe_key: str | None = None,
) -> NewJob:
    """The request for one job, or an error that names the argument."""
    options: dict[str, Any] = {"priority": priority, "max_attempts": max_attempts}
    if dedupe_key is not None:
        options["dedupe_key"] = dedupe_key
    fields = job_fields(options, where="enqueue(...)")
    if scheduled_at is not None:
        if not isinstance(scheduled_at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"scheduled_at={scheduled_at!r} is no datetime: pass an aware one")
        fields["run_at"] = from_datetime(scheduled_at, field="scheduled_at")
    text = b"{}" if body is None else payload.encode(body)
    return NewJob(kind=type_name(kind), queue=queue, payload=text, **fields)


def type_name(value: object) -> str:
    """The type of a job, or BadOption or BadName."""
    if value is None or value == "":
        raise BadOption("type is empty: say what kind of job it is, for example 'resize'")
    try:
        return names.kind_name(value)  # pyright: ignore[reportArgumentType]
    except BadName as error:
        raise BadName("type", value, str(error).partition("allowed: ")[2]) from None


def type_names(values: Sequence[str] | None) -> tuple[str, ...]:
    """The types to dequeue; empty means any."""
    if isinstance(values, str):
        raise BadOption(f"types={values!r} is one string: pass a list, for example [{values!r}]")
    return tuple(type_name(value) for value in values or ())


@lru_cache(maxsize=64)
def lease_seconds(value: Duration) -> float:
    """How long a job may go without a heartbeat, in seconds."""
    span_s = seconds(value, field="lease")
    if span_s < _MIN_LEASE_S:
        raise BadOption(f"lease={value!r} is too short: a job needs at least one second")
    return span_s


def id_text(value: object) -> str:
    """The id of a job, or BadOption."""
    if not isinstance(value, str) or not value:
        raise BadOption(f"job id {value!r} is empty or no text: pass a Job or the id of one")
    return value
