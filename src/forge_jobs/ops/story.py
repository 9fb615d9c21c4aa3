"""The story of one job: what happened to it from its enqueue to its end, what made it, and what it
made."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from forge_jobs.core.instant import SECOND, Instant, from_datetime, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.job_story import Span, SpanKind, spans
from forge_jobs.core.json_diff import differences
from forge_jobs.core.parent import Via, parent_of
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import prose
from forge_jobs.store.store import Store
from forge_jobs.store.worker_versions import KnownWorker, known_workers

from .held import holders
from .queries import decode_redacted, get_record
from .store_time import store_now
from .views import JobSummary, LogView, Reason, View, job_summary, optional_datetime
from .why import why

CHILDREN_SHOWN: Final = 20
_MAX_LINES: Final = 200


class SpanView(View, frozen=True, kw_only=True):
    """One span of a job's time. ``ended_at`` None: it lasts, perhaps ``until`` then. The other
    fields belong to attempts; ``logs`` are the first lines of its log, at most 200."""

    kind: SpanKind
    began_at: datetime
    ended_at: datetime | None
    until: datetime | None
    duration_s: float
    why: tuple[Reason, ...] = ()
    attempt: int | None = None
    worker: str | None = None
    version: str | None = None
    error: str | None = None
    traceback: str | None = None
    group: str | None = None
    logs: tuple[LogView, ...] = ()


class ParentView(View, frozen=True, kw_only=True):
    """What made a job. ``job`` None although there is an ``id``: that job was deleted."""

    via: Via
    id: str | None = None
    schedule: str | None = None
    job: JobSummary | None = None


class FieldChange(View, frozen=True, kw_only=True):
    """A field of the payload that differs from that of the job this is a copy of."""

    path: str
    was: Any
    now: Any


class Children(View, frozen=True, kw_only=True):
    """The newest jobs that a job made, at most 20. ``more``: there are others."""

    jobs: tuple[JobSummary, ...]
    more: bool


class StoryView(View, frozen=True, kw_only=True):
    """The story of a job. ``same_key`` are other jobs that have or had its dedupe key, ``changes``
    the fields by which the payload of a copy differs,
    ``holders`` the jobs that take the slots of the limit or lane that holds it."""

    id: str
    kind: str
    queue: str
    status: JobStatus
    at: datetime
    spans: tuple[SpanView, ...]
    parent: ParentView | None
    children: Children
    same_key: tuple[JobSummary, ...]
    changes: tuple[FieldChange, ...]
    holders: tuple[JobSummary, ...]


async def story(
    store: Store, job_id: str, *, reveal: bool = False, clock: Clock = SYSTEM_CLOCK
) -> StoryView:
    """The story of a job; NotFound for an unknown id."""
    record = await get_record(store, job_id)
    now, reasons, lines, children, same_key, origin = await asyncio.gather(
        store_now(store, clock),
        why(store, record, clock=clock),
        store.metrics.logs(record.id),
        _children(store, record),
        _same_key(store, record),
        _origin(store, record),
    )
    found = spans(record)
    owners = [span.owner for span in found if span.owner is not None]
    workers = await known_workers(store.settings, owners)
    logs = [
        LogView(
            at=to_datetime(line.at),
            level=line.level,
            message=line.message if reveal else prose(line.message),
        )
        for line in lines
    ]
    parent, original = origin
    return StoryView(
        id=record.id,
        kind=record.kind,
        queue=record.queue,
        status=record.status,
        at=to_datetime(now),
        spans=tuple(_span_view(span, workers, reasons, logs, now) for span in found),
        parent=parent,
        children=children,
        same_key=same_key,
        changes=() if original is None else _changes(original, record, reveal),
        holders=await holders(store, record),
    )


def _span_view(
    span: Span,
    workers: Mapping[int, KnownWorker],
    reasons: tuple[Reason, ...],
    logs: Sequence[LogView],
    now: Instant,
) -> SpanView:
    end = now if span.ended_at is None else span.ended_at
    worker = None if span.owner is None else workers.get(span.owner)
    error = span.error
    return SpanView(
        kind=span.kind,
        began_at=to_datetime(span.began_at),
        ended_at=optional_datetime(span.ended_at),
        until=optional_datetime(span.until),
        duration_s=round(max(0, end - span.began_at) / SECOND, 6),
        why=reasons if span.ended_at is None else (),
        attempt=span.attempt,
        worker=None if worker is None else worker.label,
        version=None if worker is None else worker.version or None,
        error=None if error is None else prose(error.message),
        traceback=None if error is None else error.traceback,
        group=None if error is None else error.group,
        logs=_lines_of(span, logs, end) if span.kind is SpanKind.ATTEMPT else (),
    )


def _lines_of(span: Span, logs: Sequence[LogView], end: Instant) -> tuple[LogView, ...]:
    found = [line for line in logs if span.began_at <= from_datetime(line.at, field="at") <= end]
    return tuple(found[:_MAX_LINES])


async def _origin(store: Store, record: JobRecord) -> tuple[ParentView | None, JobRecord | None]:
    """What made the job, and the job that it is a copy of."""
    link = parent_of(record.options)
    if link is None:
        return None, None
    parent = None if link.job_id is None else await store.jobs.get(link.job_id)
    view = ParentView(
        via=link.via,
        id=link.job_id,
        schedule=link.schedule,
        job=None if parent is None else job_summary(parent),
    )
    return view, parent if link.via is Via.COPY else None


async def _children(store: Store, record: JobRecord) -> Children:
    page = await store.jobs.page(Filter(parent=record.id), limit=CHILDREN_SHOWN)
    return Children(jobs=tuple(map(job_summary, page.jobs)), more=page.next is not None)


async def _same_key(store: Store, record: JobRecord) -> tuple[JobSummary, ...]:
    if record.dedupe_key is None:
        return ()
    wanted = Filter(kind=record.kind, dedupe_key=record.dedupe_key)
    page = await store.jobs.page(wanted, limit=CHILDREN_SHOWN)
    return tuple(job_summary(job) for job in page.jobs if job.id != record.id)


def _changes(original: JobRecord, record: JobRecord, reveal: bool) -> tuple[FieldChange, ...]:
    was, now = (decode_redacted(one.payload, reveal) for one in (original, record))
    return tuple(
        FieldChange(path=one.path, was=one.was, now=one.now) for one in differences(was, now)
    )
