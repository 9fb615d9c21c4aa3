"""Types of request parameters: names, numbers with their ranges, and filters.

Constraints are in the annotations, so that they are in the OpenAPI document, too.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct, field

from forge_jobs.core.instant import Instant, from_datetime
from forge_jobs.core.job_query import MAX_QUERY
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.queries import MAX_PAGE
from forge_jobs.ops.search import SearchConditions

from .route import BadRequest

_MIN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME: Final = datetime(2200, 1, 1, tzinfo=UTC)

Status: TypeAlias = Literal[
    "scheduled",
    "pending",
    "held",
    "running",
    "in_progress",
    "failed",
    "suspended",
    "done",
    "dead",
    "cancelled",
]
Sort: TypeAlias = Literal["-enqueued", "due", "-due", "ended", "-ended", "started", "-started"]
QueueName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
KindName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_.:-]{0,126}$")]
ScheduleName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,126}$")]
LimitName: TypeAlias = Annotated[str, Meta(pattern="^(queue|task):[A-Za-z0-9_.:-]{1,127}$")]
JobId: TypeAlias = Annotated[str, Meta(pattern="^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
OperationId: TypeAlias = JobId
GroupId: TypeAlias = Annotated[
    str, Meta(pattern="^[0-9a-z]{1,40}$", description="The id of an error group.")
]
WorkerName: TypeAlias = Annotated[str, Meta(pattern="^[^/\\s][^/]{0,254}$")]
KeyText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)]
SearchText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
QueryText: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_QUERY,
        description="A query line: name:value pairs separated by spaces. Names: kind, queue, "
        "status, tag, key, error, group, payload, worker, since, until; others are arguments.",
        examples=["kind:send_mail to:ann@ error:timeout since:1h"],
    ),
]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
Timestamp: TypeAlias = Annotated[datetime, Meta(tz=True)]
Days: TypeAlias = Annotated[float, Meta(ge=0, le=36_500)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=31_536_000)]
Slots: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]
Priority: TypeAlias = Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)]
Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Ids: TypeAlias = Annotated[tuple[JobId, ...], Meta(min_length=1, max_length=10_000)]
ReasonText: TypeAlias = Annotated[str, Meta(max_length=500)]
CursorText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=500)]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies; unknown fields are an error."""


T = TypeVar("T")


def renamed(name: str, value: T | None, old_name: str, old_value: T | None) -> T | None:
    """The value of a field that has an old name, which is accepted; BadRequest if both are given
    and differ."""
    if value is not None and old_value is not None and value != old_value:
        raise BadRequest(old_name, f"{old_name} is the old name of {name}: send {name} alone")
    return old_value if value is None else value


def required(name: str, value: T | None) -> T:
    """The value; BadRequest if it is missing."""
    if value is None:
        raise BadRequest(name, f"{name}: Object missing required field `{name}`")
    return value


class JobFilter(Body, frozen=True, kw_only=True):
    """Conditions that must all hold; ``from`` and ``to`` refer to the time of the enqueue,
    ``group`` to the error group of the last failed attempt."""

    queues: Annotated[tuple[QueueName, ...], Meta(max_length=100)] = ()
    kinds: Annotated[tuple[KindName, ...], Meta(max_length=100)] = ()
    statuses: tuple[Status, ...] = ()
    tag: KeyText | None = None
    dedupe_key: KeyText | None = None
    error: SearchText | None = None
    group: GroupId | None = None
    since: Timestamp | None = field(default=None, name="from")
    until: Timestamp | None = field(default=None, name="to")
    payload_search: SearchText | None = None

    def indexed_filter(self) -> Filter:
        """The part that indexes serve; several queues or kinds are left to the search."""
        return Filter(
            queue=self.queues[0] if len(self.queues) == 1 else None,
            kind=self.kinds[0] if len(self.kinds) == 1 else None,
            statuses=job_statuses(self.statuses),
            tag=self.tag,
            dedupe_key=self.dedupe_key,
            error=self.error,
            group=self.group,
            enqueued_from=to_instant("from", self.since),
            enqueued_until=to_instant("to", self.until),
        )

    def search_conditions(self) -> SearchConditions | None:
        """The part that needs a search; None if indexes serve all of it."""
        conditions = SearchConditions(
            payload=self.payload_search or "",
            queues=self.queues if len(self.queues) > 1 else (),
            kinds=self.kinds if len(self.kinds) > 1 else (),
        )
        return None if conditions == SearchConditions() else conditions

    def bulk_filter(self) -> Filter:
        """The filter for a bulk action; BadRequest if it needs a search."""
        if self.search_conditions() is not None:
            raise BadRequest(
                "filter", "filter: a bulk action takes one queue, one kind and no payload_search"
            )
        return self.indexed_filter()


def job_statuses(names: tuple[Status, ...]) -> tuple[JobStatus, ...]:
    """The states of these names; ``in_progress`` is accepted for ``running``."""
    return tuple(
        dict.fromkeys(JobStatus("running" if name == "in_progress" else name) for name in names)
    )


def to_instant(name: str, value: datetime | None) -> Instant | None:
    """Convert a checked time to an instant; None stays None."""
    if value is None:
        return None
    return from_datetime(check_time(name, value), field=name)


def check_time(name: str, value: datetime) -> datetime:
    """The time in UTC; BadRequest outside the range that every store can hold."""
    if not _MIN_TIME <= value <= _MAX_TIME:
        raise BadRequest(name, f"{name}: use a time between 1970 and 2200")
    return value.astimezone(UTC)


def time_range(
    since: datetime | None, until: datetime | None, now: Instant
) -> tuple[datetime, datetime]:
    """A time range; by default the last hour."""
    end = _MIN_TIME + timedelta(microseconds=now) if until is None else check_time("to", until)
    start = end - timedelta(hours=1) if since is None else check_time("from", since)
    return start, end


Payload: TypeAlias = dict[str, Any] | None
