"""Parses the job filter in the URL, so that a page can be bookmarked, shared and acted on."""

from datetime import UTC, datetime
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant, from_datetime
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus

from .page import Params

FIELDS: Final = ("status", "queue", "kind", "tag", "key", "error", "from", "until")


def parse_filter(params: Params, statuses: tuple[JobStatus, ...] = ()) -> Filter:
    """The filter of these parameters; BadOption for an invalid value."""
    return Filter(
        queue=params.get("queue") or None,
        kind=params.get("kind") or None,
        statuses=statuses or _parse_statuses(params.get("status", "")),
        tag=params.get("tag") or None,
        dedupe_key=params.get("key") or None,
        error=params.get("error") or None,
        enqueued_from=_parse_time("from", params.get("from", "")),
        enqueued_until=_parse_time("until", params.get("until", "")),
    )


def filter_fields(params: Params) -> dict[str, str]:
    """The filter's fields alone, for links and forms that keep the filter."""
    return {name: params.get(name, "") for name in FIELDS}


def _parse_statuses(text: str) -> tuple[JobStatus, ...]:
    statuses: list[JobStatus] = []
    for status in filter(None, (part.strip() for part in text.split(","))):
        status = "running" if status == "in_progress" else status
        if status not in tuple(JobStatus):
            raise BadOption(f"status={status!r} is not one of {', '.join(JobStatus)}")
        statuses.append(JobStatus(status))
    return tuple(statuses)


def _parse_time(name: str, text: str) -> Instant | None:
    """A time without a zone, as date fields of browsers send it, is UTC."""
    if not text:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not a time such as 2026-01-31T09:00") from None
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return from_datetime(value, field=name)
