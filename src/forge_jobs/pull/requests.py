"""Checks the arguments of a pull queue: types, leases, ids, and the request for a new job."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from forge_jobs.client.options import job_fields
from forge_jobs.core import names, payload
from forge_jobs.core.errors import BadName, BadOption
from forge_jobs.core.instant import Duration, from_datetime, seconds
from forge_jobs.core.job import NewJob
from forge_jobs.store.published_kinds import PublishedKinds

DEFAULT_LEASE: Final = "5m"
DEFAULT_MAX_ATTEMPTS: Final = 3
DEFAULT_PRIORITY: Final = 0
_MIN_LEASE_S: Final = 1.0


def new_job(
    queue: str,
    kind: object,
    body: object,
    *,
    published: PublishedKinds,
    priority: int | None,
    scheduled_at: datetime | None,
    max_attempts: int | None,
    dedupe_key: str | None = None,
) -> NewJob:
    """The request for one job, or an error that names the argument.

    If a task with this kind and queue is ``published``, what it declares holds for what is None;
    else the type is the scripts' own, and the defaults hold.
    """
    name = type_name(kind)
    of_task = published.queues.get(name) == queue and name in published.declarations
    if not of_task:
        priority = DEFAULT_PRIORITY if priority is None else priority
        max_attempts = DEFAULT_MAX_ATTEMPTS if max_attempts is None else max_attempts
    options = {"priority": priority, "max_attempts": max_attempts, "dedupe_key": dedupe_key}
    given = {option: value for option, value in options.items() if value is not None}
    fields = job_fields(given, where="enqueue(...)")
    if scheduled_at is not None:
        if not isinstance(scheduled_at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"scheduled_at={scheduled_at!r} is no datetime: pass an aware one")
        fields["run_at"] = from_datetime(scheduled_at, field="scheduled_at")
    if of_task:
        data = published.encode(name, {} if body is None else body, what="payload")
        return published.new_job(name, queue, data, fields)
    text = b"{}" if body is None else payload.encode(body)
    return NewJob(kind=name, queue=queue, payload=text, **fields)


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
