"""What a schedule leads to: checked words, the ticks that fire on a late look, and their jobs."""

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
# How late a tick may be before missed="skip" lets it go: longer than it takes to change the
# coordinator, so that the death of a process does not look like a missed tick.
SKIP_AFTER_S: Final = 60.0
# Missed ticks are counted so far; "100" in a history means 100 or more.
MAX_COUNTED: Final = 100
_DAY: Final = 86_400 * SECOND


class Due(Struct, frozen=True):
    """What a look at a schedule leads to: ticks that fire, how many were let go, and the last one
    that has come, fired or not."""

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

    Without ``queue`` the kind's queue is looked up at each fire. Without ``overlap``, ticks skip
    while an earlier job is live, except with ``missed="all"``, which wants every tick to run.
    """
    said = CronSpec(
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
    return checked(said, where=where)


def checked(said: CronSpec, *, where: str = "schedule") -> CronSpec:
    """The same, or an error that names what is wrong with it."""
    names.schedule_name(said.name)
    names.kind_name(said.kind)
    if said.queue is not None:
        names.queue_name(said.queue)
    cron.read(said.expression, said.zone)
    _member(Missed, said.missed, "missed", where)
    _member(Overlap, said.overlap, "overlap", where)
    _whole(said.missed_limit, MAX_MISSED_LIMIT, "missed_limit", where)
    if said.max_attempts is not None:
        _whole(said.max_attempts, MAX_ATTEMPTS, "max_attempts", where)
    if not 0 <= said.jitter_s <= MAX_JITTER_S:
        raise BadOption(f"{where}: jitter={said.jitter_s:g} s is outside 0 to 24 h")
    return said


def first_tick(said: CronSpec, now: Instant, *, last_at: Instant | None = None) -> Instant | None:
    """The tick a schedule begins or goes on with.

    Never one that was fired before: after a clock was set back, the last tick lies ahead. A tick
    more than a day ahead was fired by a clock that was wrong, and is no guide.
    """
    since = now if last_at is None or last_at > now + _DAY else max(now, last_at)
    return cron.read(said.expression, said.zone).next_after(since)


def due(said: CronSpec, tick: Instant, now: Instant) -> Due:
    """Which ticks fire, given that ``tick`` is the earliest unfired one and not later than ``now``.

    Bounded whatever the schedule and however long the pause.
    """
    clock = cron.read(said.expression, said.zone)
    _member(Missed, said.missed, "missed", f"schedule {said.name!r}")
    policy = Missed(said.missed)
    keep = said.missed_limit if policy is Missed.ALL else 1
    ticks = _latest(clock, tick, now, wanted=max(keep, MAX_COUNTED) + 1)
    fires = ticks[-keep:]
    if policy is Missed.SKIP and now - fires[-1] > SKIP_AFTER_S * SECOND:
        fires = []
    dropped = min(len(ticks) - len(fires), MAX_COUNTED)
    return Due(tuple(fires), dropped, ticks[-1], clock.next_after(now))


def _latest(clock: cron.Cron, tick: Instant, now: Instant, *, wanted: int) -> list[Instant]:
    """The last ticks up to ``now``, ``wanted`` or more if there are as many, oldest first."""
    span = 60 * SECOND
    while True:
        since = max(tick, now - span)
        found = list(clock.ticks(since, now))
        if since == tick:
            return [tick, *found]
        if len(found) >= wanted:
            return found
        span *= 8


def template_of(job: NewJob) -> bytes:
    """What a schedule keeps of a job beside what has a field of its own."""
    plain = NewJob(kind=job.kind, queue=job.queue)
    given: dict[str, Any] = {
        field: getattr(job, field)
        for field in NewJob.__struct_fields__
        if field not in _OWN and getattr(job, field) != getattr(plain, field)
    }
    return msgspec.json.encode(given)


def job_for(
    said: CronSpec, *, queue: str, tick: Instant | None = None, run_at: Instant | None = None
) -> NewJob:
    """The job of one tick; of none when a person fires the schedule.

    Its tags name the schedule and the tick. With ``overlap="skip"`` it takes the schedule's key,
    which the job of an earlier tick holds until it is over.
    """
    try:
        fields = msgspec.json.decode(said.template, type=dict[str, Any])
        job = msgspec.convert({**fields, "kind": said.kind, "queue": queue}, NewJob)
    except msgspec.MsgspecError as error:
        raise BadOption(f"schedule {said.name!r}: its job template is damaged: {error}") from error
    tags = [*job.tags, f"cron:{said.name}"]
    if tick is not None:
        tags.append(f"tick:{to_datetime(tick):%Y-%m-%dT%H:%M:%SZ}")
    return msgspec.structs.replace(
        job,
        payload=said.payload,
        max_attempts=said.max_attempts or job.max_attempts,
        run_at=run_at,
        tags=tuple(tags),
        dedupe_key=f"cron:{said.name}" if said.overlap == Overlap.SKIP else None,
    )


_OWN: Final = frozenset(
    {"kind", "queue", "payload", "max_attempts", "delay_s", "run_at", "dedupe_key"}
)


def _overlap(missed: str) -> Overlap:
    return Overlap.ALLOW if missed == Missed.ALL else Overlap.SKIP


def _member(words: type[StrEnum], value: object, field: str, where: str) -> None:
    if value not in words.__members__.values():
        raise BadOption(f"{where}: {field}={value!r} is not known: use {', '.join(words)}")


def _whole(value: object, most: int, field: str, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadOption(f"{where}: {field}={value!r}: use a whole number from 1 to {most:,}")
