"""Rules for cron schedules: checks, which ticks fire when a process is late, and their jobs."""

from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from . import cron, names
from .errors import BadOption
from .instant import SECOND, Duration, Instant, seconds, to_datetime
from .job import NewJob
from .schedule import MISSED_LIMIT, CronSpec, Missed, Overlap

MAX_MISSED_LIMIT: Final = 1_000
MAX_JITTER_S: Final = 86_400.0
MAX_ATTEMPTS: Final = 1_000_000
# How late a tick may be before missed="skip" drops it: longer than a change of leadership takes, so
# that the death of a process does not look like a missed tick.
SKIP_AFTER_S: Final = 60.0
# Missed ticks are counted up to this number; "100" in a history means 100 or more.
MAX_COUNTED: Final = 100
_DAY: Final = 86_400 * SECOND


class Due(Struct, frozen=True):
    """The ticks that fire now, how many were dropped, the latest tick that has passed (fired or
    not), and the next one."""

    ticks: tuple[Instant, ...]
    missed: int
    latest: Instant
    next_at: Instant | None


def spec(
    job: NewJob,
    expression: str,
    *,
    name: str | None = None,
    queue: str | None = None,
    max_attempts: int | None = None,
    tz: str = "UTC",
    missed: str = Missed.ONCE,
    missed_limit: int = MISSED_LIMIT,
    overlap: str | None = None,
    jitter: Duration = 0,
    where: str = "schedule",
) -> CronSpec:
    """A checked CronSpec for jobs like ``job``. Raises BadCron, BadName, BadOption, BadDuration.

    Without ``queue`` the queue of the kind is read at each fire. Without ``overlap`` a tick is
    skipped while an earlier job is live, except with ``missed="all"``, where every tick has to run.
    """
    schedule = CronSpec(
        name=names.kind_name(job.kind) if name is None else name,
        expression=expression,
        kind=job.kind,
        queue=queue,
        payload=job.payload,
        zone=tz,
        missed=missed,
        missed_limit=missed_limit,
        overlap=_overlap(missed) if overlap is None else overlap,
        jitter_s=seconds(jitter, field=f"{where}: jitter"),
        max_attempts=max_attempts,
        template=template_of(job),
    )
    return checked(schedule, where=where)


def checked(schedule: CronSpec, *, where: str = "schedule") -> CronSpec:
    """The schedule itself; an error that names the bad field when it is not valid."""
    names.schedule_name(schedule.name)
    names.kind_name(schedule.kind)
    if schedule.queue is not None:
        names.queue_name(schedule.queue)
    cron.read(schedule.expression, schedule.zone)
    _member(Missed, schedule.missed, "missed", where)
    _member(Overlap, schedule.overlap, "overlap", where)
    _whole(schedule.missed_limit, MAX_MISSED_LIMIT, "missed_limit", where)
    if schedule.max_attempts is not None:
        _whole(schedule.max_attempts, MAX_ATTEMPTS, "max_attempts", where)
    if not 0 <= schedule.jitter_s <= MAX_JITTER_S:
        raise BadOption(f"{where}: jitter={schedule.jitter_s:g} s is outside 0 to 24 h")
    return schedule


def first_tick(
    schedule: CronSpec, now: Instant, *, last_at: Instant | None = None
) -> Instant | None:
    """The tick a schedule starts or resumes with.

    Never one that was fired before: after a clock was set back, ``last_at`` is in the future. A
    ``last_at`` more than a day ahead was written by a wrong clock and is ignored.
    """
    since = now if last_at is None or last_at > now + _DAY else max(now, last_at)
    return cron.read(schedule.expression, schedule.zone).next_after(since)


def due(schedule: CronSpec, tick: Instant, now: Instant) -> Due:
    """Which ticks fire, given that ``tick`` is the earliest unfired one and not later than ``now``.

    The work is bounded, whatever the schedule and however long the pause.
    """
    cron_times = cron.read(schedule.expression, schedule.zone)
    _member(Missed, schedule.missed, "missed", f"schedule {schedule.name!r}")
    policy = Missed(schedule.missed)
    keep = schedule.missed_limit if policy is Missed.ALL else 1
    ticks = _latest(cron_times, tick, now, wanted=max(keep, MAX_COUNTED) + 1)
    fires = ticks[-keep:]
    if policy is Missed.SKIP and now - fires[-1] > SKIP_AFTER_S * SECOND:
        fires = []
    dropped = min(len(ticks) - len(fires), MAX_COUNTED)
    return Due(tuple(fires), dropped, ticks[-1], cron_times.next_after(now))


def _latest(cron_times: cron.Cron, tick: Instant, now: Instant, *, wanted: int) -> list[Instant]:
    """The last ticks up to ``now``, oldest first: at least ``wanted``, if there are as many."""
    span = 60 * SECOND
    while True:
        since = max(tick, now - span)
        found = list(cron_times.ticks(since, now))
        if since == tick:
            return [tick, *found]
        if len(found) >= wanted:
            return found
        span *= 8


def template_of(job: NewJob) -> bytes:
    """The fields of a job that a schedule stores in ``template``: those without their own field."""
    plain = NewJob(kind=job.kind, queue=job.queue)
    given: dict[str, Any] = {
        field: getattr(job, field)
        for field in NewJob.__struct_fields__
        if field not in _OWN and getattr(job, field) != getattr(plain, field)
    }
    return msgspec.json.encode(given)


def job_for(
    schedule: CronSpec,
    *,
    queue: str,
    tick: Instant | None = None,
    run_at: Instant | None = None,
    template: NewJob | None = None,
) -> NewJob:
    """The job of one tick; ``tick`` is None when an operator triggers the schedule.

    ``template`` is what the task declares now; without it the schedule's own template counts, which
    is what the task declared when the schedule was stored. Its tags name the schedule and the tick.
    With ``overlap="skip"`` it has the schedule's dedupe key, which the job of an earlier tick holds
    until it has ended.
    """
    job = _stored_template(schedule, queue) if template is None else template
    tags = [*job.tags, f"cron:{schedule.name}"]
    if tick is not None:
        tags.append(f"tick:{to_datetime(tick):%Y-%m-%dT%H:%M:%SZ}")
    return msgspec.structs.replace(
        job,
        queue=queue,
        payload=schedule.payload,
        max_attempts=schedule.max_attempts or job.max_attempts,
        run_at=run_at,
        tags=tuple(tags),
        dedupe_key=f"cron:{schedule.name}" if schedule.overlap == Overlap.SKIP else None,
    )


def _stored_template(schedule: CronSpec, queue: str) -> NewJob:
    try:
        fields = msgspec.json.decode(schedule.template, type=dict[str, Any])
        return msgspec.convert({**fields, "kind": schedule.kind, "queue": queue}, NewJob)
    except msgspec.MsgspecError as error:
        raise BadOption(
            f"schedule {schedule.name!r}: its job template is damaged: {error}"
        ) from error


_OWN: Final = frozenset({"kind", "queue", "payload", "delay_s", "run_at", "dedupe_key"})


def _overlap(missed: str) -> Overlap:
    return Overlap.ALLOW if missed == Missed.ALL else Overlap.SKIP


def _member(members: type[StrEnum], value: object, field: str, where: str) -> None:
    if value not in members.__members__.values():
        raise BadOption(f"{where}: {field}={value!r} is not known: use {', '.join(members)}")


def _whole(value: object, maximum: int, field: str, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise BadOption(f"{where}: {field}={value!r}: use a whole number from 1 to {maximum:,}")
