"""Read models of durable steps: the steps of a job, what suspended jobs wait for, stored events.

Values and payloads are redacted as those of jobs are. Stores keep steps in the order of their
names, so a page of them in the order of time reads all of the job, without values: at most 10,000.
"""

import base64
import binascii
from collections.abc import Collection, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import UNSET

from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.events import EventRecord, event_key, event_name
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import is_terminal
from forge_jobs.core.steps import StepKind, StepRecord, is_internal, shown_step
from forge_jobs.core.unused_steps import read_unused, unused_record
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .queries import MAX_PAGE, decode_redacted, get_record
from .step_views import RunStart, StepView, open_wait, run_starts, step_view
from .store_time import store_now
from .views import View, WaitView
from .waits import job_waits, wait_view

DEFAULT_LIMIT: Final = 100
# Values of a page: at most so many bytes, and at least one step.
MAX_VALUES_BYTES: Final = 1 << 20
_BATCH: Final = 1_000
_SHOWN_RUNS: Final = 100


class StepsPage(View, frozen=True, kw_only=True):
    """Steps in the order in which they began. ``total`` counts all of the job, ``next`` is the
    offset of the following page. ``unused`` counts those of all that the run that ended the job did
    not use. ``began_at`` is that of the first of all, ``at`` the store time, ``until`` the end of
    the last one that has ended or is planned. ``runs``: the first 100 claims that stored steps."""

    steps: tuple[StepView, ...]
    total: int
    offset: int
    next: int | None
    at: datetime
    unused: int = 0
    began_at: datetime | None = None
    until: datetime | None = None
    runs: tuple[RunStart, ...] = ()


class WaitsPage(View, frozen=True, kw_only=True):
    """What suspended jobs wait for, by name, key and job; ``next`` is the cursor of the following
    page."""

    waits: tuple[WaitView, ...]
    next: str | None


class EventView(View, frozen=True, kw_only=True):
    """A stored event. ``delivered``: jobs that wait for it were looked for; False only for one that
    was sent in a transaction a moment ago."""

    name: str
    key: str
    sent_at: datetime
    ends_at: datetime
    delivered: bool
    size: int
    payload: Any


class EventsPage(View, frozen=True, kw_only=True):
    """Events, newest first; ``next`` is the cursor of the following page."""

    events: tuple[EventView, ...]
    next: str | None


async def job_steps(
    store: Store,
    job_id: str,
    *,
    offset: int = 0,
    limit: int = DEFAULT_LIMIT,
    values: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> StepsPage:
    """Steps of a job in the order in which they began. With ``values`` a page ends early when its
    values reach 1 MiB. NotFound for an unknown job."""
    check_limit(limit)
    record = await get_record(store, job_id)
    everything = await _read_all(store, record.id)
    found = _named(everything)
    unused, unused_count = await _unused(store, record, everything)
    waits = await job_waits(store, record)
    now = await store_now(store, clock)
    chosen = found[offset : offset + limit]
    chosen = chosen[: _fitting(chosen)] if values else chosen
    stored = await _values(store, record.id, chosen) if values else {}
    is_live = not is_terminal(record.status)
    runs = run_starts(found)
    numbers = {run.epoch: number for number, run in enumerate(runs, 1)}
    views = [
        step_view(
            one,
            run=numbers[one.epoch],
            now=now,
            is_live=is_live,
            unused=one.name in unused,
            value=stored.get(one.name, UNSET),
        )
        for one in chosen
    ]
    total, after = len(found), offset + len(chosen)
    opened = {wait.step: wait for wait in reversed(waits)}
    if offset <= total == after and len(chosen) < limit:
        views.extend(open_wait(wait) for wait in opened.values())
    ends = [one.ended_at for one in found] + [wait.began_at for wait in waits]
    begins = [one.began_at for one in found] + [wait.began_at for wait in waits]
    return StepsPage(
        steps=tuple(views),
        total=total + len(opened),
        offset=offset,
        next=after if after < total or (len(chosen) == limit and opened) else None,
        at=to_datetime(now),
        unused=unused_count,
        began_at=to_datetime(min(begins)) if begins else None,
        until=to_datetime(max(ends)) if ends else None,
        runs=tuple(runs[:_SHOWN_RUNS]),
    )


async def step_value(store: Store, job_id: str, name: str) -> Any:
    """The redacted value of one step; NotFound for an unknown job or step."""
    record = await get_record(store, job_id)
    step = find_step(record.id, await read_records(store, record.id), name)
    return (await _values(store, record.id, [step])).get(step.name)


async def read_records(store: Store, job_id: str) -> list[StepRecord]:
    """All steps of a job that its handler named, without values, in the order in which they
    began."""
    return _named(await _read_all(store, job_id))


async def _read_all(store: Store, job_id: str) -> list[StepRecord]:
    found: list[StepRecord] = []
    after: str | None = None
    while True:
        page = await store.steps.page(job_id, after=after, limit=_BATCH, values=False)
        found += page
        if len(page) < _BATCH:
            return found
        after = page[-1].name


def _named(records: Sequence[StepRecord]) -> list[StepRecord]:
    shown = [record for record in records if not is_internal(record.name)]
    return sorted(shown, key=lambda record: (record.began_at, record.name))


async def _unused(
    store: Store, job: JobRecord, records: Sequence[StepRecord]
) -> tuple[Collection[str], int]:
    kept = unused_record(job, records)
    if kept is None:
        return (), 0
    with_value = await store.steps.page(job.id, names=[kept.name])
    return read_unused(with_value[0], records) if with_value else ((), 0)


def find_step(job_id: str, records: Sequence[StepRecord], name: str) -> StepRecord:
    """The step of this name as people read it, or as it is stored; NotFound names similar ones."""
    for record in records:
        if record.name == name:
            return record
    for record in records:
        shown = shown_step(record.name)
        if name in (shown, redact.prose(shown)):
            return record
    names = [shown_step(record.name) for record in records]
    if not names:
        raise NotFound(f"job {job_id} has no stored step: see `forge jobs show {job_id}`")
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(map(repr, close))}?" if close else f"its first is {names[0]!r}."
    )
    raise NotFound(f"job {job_id} has no step {name!r}: {hint} See `forge jobs steps {job_id}`")


async def waits(
    store: Store,
    *,
    name: str | None = None,
    key: str | None = None,
    limit: int = DEFAULT_LIMIT,
    after: str | None = None,
) -> WaitsPage:
    """What suspended jobs wait for: everything, or a name, or a name and key."""
    check_limit(limit)
    _check_topic(name, key)
    cursor = None if after is None else _parse_cursor(after)
    found = await store.events.waits(name=name, key=key, limit=limit + 1, after=cursor)
    last = found[limit - 1] if len(found) > limit else None
    return WaitsPage(
        waits=tuple(wait_view(wait) for wait in found[:limit]),
        next=None if last is None else _cursor(last.name, last.key, last.job_id),
    )


async def events(
    store: Store,
    *,
    name: str | None = None,
    key: str | None = None,
    limit: int = DEFAULT_LIMIT,
    before: str | None = None,
) -> EventsPage:
    """Stored events, newest first. A page ends early when its payloads reach 1 MiB."""
    check_limit(limit)
    _check_topic(name, key)
    found = await store.events.page(
        name=name, key=key, limit=limit + 1, before=_parse_number(before)
    )
    count, size = 0, 0
    for record in found[:limit]:
        size += len(record.payload)
        if count and size > MAX_VALUES_BYTES:
            break
        count += 1
    more = len(found) > count
    return EventsPage(
        events=tuple(_event_view(record) for record in found[:count]),
        next=_event_cursor(found[count - 1]) if more and count else None,
    )


def check_limit(limit: int) -> None:
    """BadOption outside 1 to 1,000."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_PAGE:,}: page with the cursor")


def _check_topic(name: str | None, key: str | None) -> None:
    if name is not None:
        event_name(name)
    if key is None:
        return
    if name is None:
        raise BadOption("a key belongs to an event: give its name too")
    event_key(key)


def _fitting(records: Sequence[StepRecord]) -> int:
    size = 0
    for count, record in enumerate(records):
        size += record.size
        if count and size > MAX_VALUES_BYTES:
            return count
    return len(records)


async def _values(store: Store, job_id: str, records: Sequence[StepRecord]) -> dict[str, Any]:
    if not records:
        return {}
    names = [record.name for record in records]
    found = await store.steps.page(job_id, names=names, limit=len(names))
    return {record.name: _value(record) for record in found}


def _value(record: StepRecord) -> Any:
    if record.value is None:
        return None
    value = decode_redacted(record.value, reveal=False)
    if record.kind is StepKind.SLEEP:
        return to_datetime(value)
    if record.kind is StepKind.EVENT:
        return {**value, "sent_at": to_datetime(value["sent_at"])}
    return value


def _event_view(record: EventRecord) -> EventView:
    return EventView(
        name=record.name,
        key=redact.prose(record.key),
        sent_at=to_datetime(record.sent_at),
        ends_at=to_datetime(record.ends_at),
        delivered=record.seq is not None,
        size=len(record.payload),
        payload=redact.value(json_payload.decode(record.payload)),
    )


def _event_cursor(record: EventRecord) -> str | None:
    return None if record.seq is None else str(record.seq)


def _parse_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadOption(f"before={text!r} is no cursor: use `next` of the page before")
    return int(text)


def _cursor(*parts: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def _parse_cursor(text: str) -> tuple[str, str, str]:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=tuple[str, str, str])
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise BadOption(f"after={text!r} is no cursor: use `next` of the page before") from None
