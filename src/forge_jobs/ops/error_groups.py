"""Error groups: lists, one group with samples, and what operators do with them."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from forge_jobs.core.error_groups import HOUR, ErrorFilter, ErrorGroup, GroupState, matches
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.instant import MINUTE, SECOND, Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Cursor, Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import prose
from forge_jobs.store.store import Store

from .actions import Action
from .audit import Actor, Audit, AuditTrail
from .store_time import store_now
from .views import View, optional_datetime

DEFAULT_SPAN_S: Final = 86_400.0
MAX_SPAN_S: Final = 14 * 86_400.0
MAX_PAGE: Final = 1_000
# What a retry of a group reaches.
RETRIED: Final = (JobStatus.DEAD, JobStatus.FAILED)
_SHORT_TREND_S: Final = 2 * 3_600.0
_MAX_VALUES_SHOWN: Final = 51


class GroupOrder(StrEnum):
    """*last_seen*: the newest failure first. *count*: the most failures of the time range first."""

    LAST_SEEN = "last_seen"
    COUNT = "count"


class ValueCount(View, frozen=True, kw_only=True):
    """A kind, queue, worker or version, and the failures with it."""

    value: str
    count: int


class FailurePoint(View, frozen=True, kw_only=True):
    """The failures of one minute or hour; ``at`` is its start."""

    at: datetime
    count: int


class ErrorGroupView(View, frozen=True, kw_only=True):
    """Failures with the same exception type, normalised message and frame of the user's code.

    ``recent`` counts the failures in the time range, ``count`` all of them. ``latest`` is the
    newest message as it was. Of ``kinds`` to ``versions`` at most 50 values are counted apart, the
    rest as ``other``.
    """

    id: str
    title: str
    type: str
    message: str
    frame: str
    latest: str
    state: GroupState
    count: int
    recent: int
    first_at: datetime
    last_at: datetime
    trend: tuple[FailurePoint, ...]
    kinds: tuple[ValueCount, ...]
    queues: tuple[ValueCount, ...]
    workers: tuple[ValueCount, ...]
    versions: tuple[ValueCount, ...]
    samples: tuple[str, ...]
    resolved_at: datetime | None
    resolved_by: str
    returned_at: datetime | None


class ErrorGroupsPage(View, frozen=True, kw_only=True):
    """A page of groups. ``groups_in_all`` and ``failures`` are those of all pages; ``next``
    continues after this one."""

    at: datetime
    since: datetime
    groups: tuple[ErrorGroupView, ...]
    groups_in_all: int
    failures: int
    next: Cursor | None


class ErrorSample(View, frozen=True, kw_only=True):
    """A job of a group, with its newest failure of that group."""

    id: str
    kind: str
    queue: str
    status: JobStatus
    at: datetime
    attempt: int
    message: str
    traceback: str | None


class ErrorGroupDetail(View, frozen=True, kw_only=True):
    """One group with samples, the newest first."""

    at: datetime
    group: ErrorGroupView
    samples: tuple[ErrorSample, ...]


async def error_groups(
    store: Store,
    *,
    span_s: float = DEFAULT_SPAN_S,
    kind: str | None = None,
    queue: str | None = None,
    states: Sequence[GroupState] = (),
    order: GroupOrder = GroupOrder.LAST_SEEN,
    limit: int = 50,
    after: Cursor | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ErrorGroupsPage:
    """Groups with a failure in the last ``span_s`` seconds. A store has at most a thousand."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_PAGE:,}")
    check_span(span_s)
    now = await store_now(store, clock)
    since = now - round(span_s * SECOND)
    wanted = ErrorFilter(since=since, kind=kind, queue=queue, states=tuple(states))
    found = [
        group for group in await store.error_groups.seen(since=since) if matches(group, wanted)
    ]
    recent = {group.id: group.count_since(since) for group in found}
    keys = {
        group.id: (
            -(recent[group.id] if order is GroupOrder.COUNT else group.last_at), group.id
        )
        for group in found
    }  # fmt: skip
    found.sort(key=lambda group: keys[group.id])
    rest = found if after is None else [g for g in found if keys[g.id] > _parse_cursor(after)]
    page = rest[:limit]
    return ErrorGroupsPage(
        at=to_datetime(now),
        since=to_datetime(since),
        groups=tuple(_view(group, since, now) for group in page),
        groups_in_all=len(found),
        failures=sum(recent.values()),
        next=_cursor(keys[page[-1].id]) if len(rest) > len(page) else None,
    )


async def error_group(
    store: Store, group_id: str, *, span_s: float = DEFAULT_SPAN_S, clock: Clock = SYSTEM_CLOCK
) -> ErrorGroupDetail:
    """One group with its samples; NotFound for an unknown id."""
    check_span(span_s)
    group, now = await asyncio.gather(_get(store, group_id), store_now(store, clock))
    records = await asyncio.gather(*(store.jobs.get(job_id) for job_id in group.samples))
    samples = [_sample(record, group_id) for record in records if record is not None]
    return ErrorGroupDetail(
        at=to_datetime(now),
        group=_view(group, now - round(span_s * SECOND), now),
        samples=tuple(sample for sample in samples if sample is not None),
    )


def jobs_of(
    group_id: str, action: Action, *, kind: str | None = None, queue: str | None = None
) -> Filter:
    """The filter of the jobs whose last failed attempt is of a group, for an action on them. A
    retry leaves alone what somebody has cancelled."""
    statuses = RETRIED if action is Action.RETRY else ()
    return Filter(group=group_id, kind=kind, queue=queue, statuses=statuses)


def check_span(span_s: float) -> None:
    """BadOption for a time range that the trend does not reach."""
    if not 0 < span_s <= MAX_SPAN_S:
        raise BadOption(f"a range of {span_s:g} s: use more than 0 and at most 14 days")


class ErrorGroupActions:
    """Resolves and reopens groups of one store; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._trail = AuditTrail(store, actor, audit, clock)

    async def resolve(self, group_id: str) -> ErrorGroupView:
        """Mark a group as resolved; it is flagged when it is seen again."""
        group = await _get(self._store, group_id)
        await self._store.error_groups.resolve([group_id], by=self._trail.actor.name)
        return await self._changed("resolve error", group)

    async def reopen(self, group_id: str) -> ErrorGroupView:
        """Remove the mark."""
        group = await _get(self._store, group_id)
        await self._store.error_groups.reopen([group_id])
        return await self._changed("reopen error", group)

    async def _changed(self, action: str, before: ErrorGroup) -> ErrorGroupView:
        after = await _get(self._store, before.id)
        await self._trail.record(
            action, f"{before.id} {before.title}"[:200],
            before={"state": before.state}, after={"state": after.state},
        )  # fmt: skip
        now = await self._store.now()
        return _view(after, now - round(DEFAULT_SPAN_S * SECOND), now)


async def _get(store: Store, group_id: str) -> ErrorGroup:
    group = await store.error_groups.get(group_id) if group_id.isalnum() else None
    if group is None:
        raise NotFound(f"there is no error group {group_id!r}: see `forge errors list`")
    return group


def _view(group: ErrorGroup, since: Instant, now: Instant) -> ErrorGroupView:
    return ErrorGroupView(
        id=group.id,
        title=prose(group.title),
        type=group.type,
        message=prose(group.message),
        frame=group.frame,
        latest=prose(group.latest),
        state=group.state,
        count=group.count,
        recent=group.count_since(since),
        first_at=to_datetime(group.first_at),
        last_at=to_datetime(group.last_at),
        trend=_trend(group, since, now),
        kinds=_values(group.kinds),
        queues=_values(group.queues),
        workers=_values(group.workers),
        versions=_values(group.versions),
        samples=group.samples,
        resolved_at=optional_datetime(group.resolved_at),
        resolved_by=group.resolved_by,
        returned_at=optional_datetime(group.returned_at),
    )


def _trend(group: ErrorGroup, since: Instant, now: Instant) -> tuple[FailurePoint, ...]:
    """Minutes for ranges up to two hours, else hours; without the empty ones."""
    short = now - since <= _SHORT_TREND_S * SECOND
    known, width = (group.minutes, MINUTE) if short else (group.hours, HOUR)
    first = since - since % width
    points = [(at, count) for at, count in known.points(width) if at >= first]
    return tuple(FailurePoint(at=to_datetime(at), count=count) for at, count in points)


def _values(counts: Mapping[str, int]) -> tuple[ValueCount, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ValueCount(value=value, count=count) for value, count in ordered)[
        :_MAX_VALUES_SHOWN
    ]


def _sample(record: JobRecord, group_id: str) -> ErrorSample | None:
    """None for a job that was retried so often that its failure of the group is forgotten."""
    for error in reversed(record.errors):
        if error.group == group_id:
            return ErrorSample(
                id=record.id,
                kind=record.kind,
                queue=record.queue,
                status=record.status,
                at=to_datetime(error.at),
                attempt=error.attempt,
                message=prose(error.message),
                traceback=error.traceback,
            )
    return None


def _cursor(key: tuple[int, str]) -> Cursor:
    return f"{-key[0]:x}-{key[1]}"


def _parse_cursor(cursor: Cursor) -> tuple[int, str]:
    number, _, group_id = cursor.partition("-")
    try:
        return -int(number, 16), group_id
    except ValueError:
        raise BadOption(f"cursor {cursor!r} was not given out here: begin without one") from None
