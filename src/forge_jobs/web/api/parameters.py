"""The words of requests: names and numbers with their ranges, and filters, as the API takes them.

What a JSON schema can say is said here, so that the OpenAPI document says it, too.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

from forge_jobs.core.instant import Instant, from_datetime
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.queries import MAX_PAGE
from forge_jobs.ops.search import Wanted

from .route import BadRequest

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(2200, 1, 1, tzinfo=UTC)

Status: TypeAlias = Literal[
    "scheduled", "pending", "held", "running", "in_progress", "failed", "done", "dead", "cancelled"
]
QueueName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
KindName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_.:-]{0,126}$")]
ScheduleName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,126}$")]
LimitName: TypeAlias = Annotated[str, Meta(pattern="^(queue|task):[A-Za-z0-9_.:-]{1,127}$")]
JobId: TypeAlias = Annotated[str, Meta(pattern="^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
OperationId: TypeAlias = JobId
WorkerName: TypeAlias = Annotated[str, Meta(pattern="^[^/\\s][^/]{0,254}$")]
KeyText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)]
SearchText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Days: TypeAlias = Annotated[float, Meta(ge=0, le=36_500)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=31_536_000)]
Slots: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]
Priority: TypeAlias = Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)]
Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Ids: TypeAlias = Annotated[tuple[JobId, ...], Meta(min_length=1, max_length=10_000)]
Words: TypeAlias = Annotated[str, Meta(max_length=500)]
CursorText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=500)]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body; a field nobody knows is a mistake."""


class JobFilter(Body, frozen=True, kw_only=True):
    """Conditions that must all hold; ``from`` and ``to`` are about the time of the enqueue."""

    queues: Annotated[tuple[QueueName, ...], Meta(max_length=100)] = ()
    kinds: Annotated[tuple[KindName, ...], Meta(max_length=100)] = ()
    statuses: tuple[Status, ...] = ()
    tag: KeyText | None = None
    dedupe_key: KeyText | None = None
    error: SearchText | None = None
    since: Moment | None = field(default=None, name="from")
    until: Moment | None = field(default=None, name="to")
    payload_search: SearchText | None = None

    def plain(self) -> Filter:
        """What an index can answer: of several queues or kinds, none."""
        return Filter(
            queue=self.queues[0] if len(self.queues) == 1 else None,
            kind=self.kinds[0] if len(self.kinds) == 1 else None,
            statuses=states(self.statuses),
            tag=self.tag,
            dedupe_key=self.dedupe_key,
            error=self.error,
            enqueued_from=instant("from", self.since),
            enqueued_until=instant("to", self.until),
        )

    def rest(self) -> Wanted | None:
        """What is left for a search; None when an index answers everything."""
        wanted = Wanted(
            payload=self.payload_search or "",
            queues=self.queues if len(self.queues) > 1 else (),
            kinds=self.kinds if len(self.kinds) > 1 else (),
        )
        return None if wanted == Wanted() else wanted

    def exact(self) -> Filter:
        """The filter for a bulk action, which reaches by index alone."""
        if self.rest() is not None:
            raise BadRequest(
                "filter", "filter: a bulk action takes one queue, one kind and no payload_search"
            )
        return self.plain()


def states(words: tuple[Status, ...]) -> tuple[JobStatus, ...]:
    """The states behind the words; ``in_progress`` is the older word for running."""
    return tuple(
        dict.fromkeys(JobStatus("running" if word == "in_progress" else word) for word in words)
    )


def instant(name: str, moment: datetime | None) -> Instant | None:
    """The instant of a moment within two centuries."""
    if moment is None:
        return None
    return from_datetime(bounded(name, moment), field=name)


def bounded(name: str, moment: datetime) -> datetime:
    """A moment that every calendar and every store can hold."""
    if not _FIRST <= moment <= _LAST:
        raise BadRequest(name, f"{name}: use a time between 1970 and 2200")
    return moment.astimezone(UTC)


def span(since: datetime | None, until: datetime | None, now: Instant) -> tuple[datetime, datetime]:
    """A range of time; the last hour where nothing is said."""
    end = _FIRST + timedelta(microseconds=now) if until is None else bounded("to", until)
    start = end - timedelta(hours=1) if since is None else bounded("from", since)
    return start, end


Payload: TypeAlias = dict[str, Any] | None
