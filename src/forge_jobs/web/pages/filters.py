"""Filters in the address: what a page shows can be bookmarked, shared and acted on."""

from datetime import UTC, datetime
from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant, from_datetime
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus

from .page import Given

FIELDS: Final = ("status", "queue", "kind", "tag", "key", "error", "from", "until")


def filter_of(given: Given, statuses: tuple[JobStatus, ...] = ()) -> Filter:
    """The filter an address names; BadOption for a value that cannot be."""
    return Filter(
        queue=given.get("queue") or None,
        kind=given.get("kind") or None,
        statuses=statuses or _statuses(given.get("status", "")),
        tag=given.get("tag") or None,
        dedupe_key=given.get("key") or None,
        error=given.get("error") or None,
        enqueued_from=_moment("from", given.get("from", "")),
        enqueued_until=_moment("until", given.get("until", "")),
    )


def kept(given: Given) -> dict[str, str]:
    """The fields of the filter alone, for links and forms that keep it."""
    return {name: given.get(name, "") for name in FIELDS}


def _statuses(text: str) -> tuple[JobStatus, ...]:
    found: list[JobStatus] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        word = "running" if word == "in_progress" else word
        if word not in tuple(JobStatus):
            raise BadOption(f"status={word!r} is not one of {', '.join(JobStatus)}")
        found.append(JobStatus(word))
    return tuple(found)


def _moment(name: str, text: str) -> Instant | None:
    """A browser's date field gives no zone; it means UTC here, as the field says."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not a time such as 2026-01-31T09:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return from_datetime(moment, field=name)
