"""How a schedule does: its last runs and their results, its next times, why it does not run."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from forge_jobs.core import cron
from forge_jobs.core.cron_words import in_words
from forge_jobs.core.errors import BadCron
from forge_jobs.core.instant import SECOND, Instant, to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.parent import schedule_parent
from forge_jobs.core.schedule import Missed
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus, is_terminal
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import prose
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.schedules import Fire, FireOutcome, Schedule
from forge_jobs.store.store import Store

from .schedules import ScheduleView, not_found, schedule_view
from .store_time import store_now
from .views import Reason, View, optional_datetime
from .why import queue_blocks

RUNS_SHOWN: Final = 30
NEXT_SHOWN: Final = 5
# A tick that is later than this was not fired by anybody.
_OVERDUE_S: Final = 15.0
_MAX_JOBS: Final = 60


class TickResult(StrEnum):
    """What became of a tick. ``waiting`` and ``running``: its job has not ended. ``gone``: its job
    was deleted."""

    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    RUNNING = "running"
    WAITING = "waiting"
    SKIPPED = "skipped"
    MISSED = "missed"
    GONE = "gone"


class RunView(View, frozen=True, kw_only=True):
    """One tick. ``missed``: ticks before it that nobody fired. ``ran_s`` is the duration of the
    last attempt."""

    tick: datetime
    state: TickResult
    triggered: bool
    missed: int
    job_id: str | None
    started_at: datetime | None
    ran_s: float | None
    attempts: int | None
    error: str | None


class ScheduleRuns(View, frozen=True, kw_only=True):
    """How a schedule does. ``runs`` are the last 30, the oldest first; ``next`` the next five
    times; ``why_not`` is empty for a schedule that runs as it says."""

    schedule: ScheduleView
    words: str
    next: tuple[datetime, ...]
    runs: tuple[RunView, ...]
    why_not: tuple[Reason, ...]


async def schedule_runs(store: Store, name: str, *, clock: Clock = SYSTEM_CLOCK) -> ScheduleRuns:
    """One schedule; NotFound for an unknown name."""
    schedule = await store.schedules.get(name)
    if schedule is None:
        raise not_found(name)
    [found] = await runs_of(store, [schedule], clock=clock)
    return found


async def runs_of(
    store: Store, schedules: Sequence[Schedule], *, clock: Clock = SYSTEM_CLOCK
) -> tuple[ScheduleRuns, ...]:
    """How these schedules do; two reads for each."""
    now, processes, kinds, configs = await asyncio.gather(
        store_now(store, clock), store.processes.all(), store.queues.kinds(), store.queues.all()
    )
    by_name = {config.name: config for config in configs}

    async def one(schedule: Schedule) -> ScheduleRuns:
        fires, jobs = await asyncio.gather(
            store.schedules.history(schedule.name, limit=RUNS_SHOWN), _jobs(store, schedule.name)
        )
        queue = schedule.queue or kinds.get(schedule.kind)
        serving = [process for process in processes if queue in process.queues]
        blocks = () if queue is None else queue_blocks(queue, by_name.get(queue), serving, now)
        runs = tuple(_run(fire, jobs, now) for fire in reversed(fires))
        return ScheduleRuns(
            schedule=schedule_view(schedule),
            words=_words(schedule.expression),
            next=_next_times(schedule, now),
            runs=runs,
            why_not=(
                *_own_reasons(schedule, processes, now),
                *_kind_reasons(schedule, kinds),
                *(blocks if processes else ()),
                *_last_reasons(schedule, fires),
            ),
        )

    return tuple(await asyncio.gather(*map(one, schedules)))


async def _jobs(store: Store, name: str) -> dict[str, JobRecord]:
    """The newest jobs of a schedule, by id."""
    page = await store.jobs.page(Filter(parent=schedule_parent(name)), limit=_MAX_JOBS)
    return {job.id: job for job in page.jobs}


def _run(fire: Fire, jobs: Mapping[str, JobRecord], now: Instant) -> RunView:
    job = None if fire.job_id is None else jobs.get(fire.job_id)
    own = fire.outcome in (FireOutcome.FIRED, FireOutcome.TRIGGERED)
    started_at = job.started_at if job is not None and own else None
    ended_at = None if job is None else job.finished_at or now
    error = None if job is None or not own else job.last_error
    return RunView(
        tick=to_datetime(fire.tick),
        state=_state(fire, job),
        triggered=fire.outcome is FireOutcome.TRIGGERED,
        missed=fire.missed,
        job_id=fire.job_id,
        started_at=optional_datetime(started_at),
        ran_s=None
        if started_at is None or ended_at is None
        else round(max(0, ended_at - started_at) / SECOND, 3),
        attempts=job.attempts if job is not None and own else None,
        error=None if error is None else prose(error),
    )


def _state(fire: Fire, job: JobRecord | None) -> TickResult:
    if fire.outcome is FireOutcome.SKIPPED:
        return TickResult.SKIPPED
    if fire.outcome is FireOutcome.MISSED:
        return TickResult.MISSED
    if job is None:
        return TickResult.GONE
    if is_terminal(job.status):
        return TickResult(job.status.value)
    return TickResult.RUNNING if job.status is JobStatus.RUNNING else TickResult.WAITING


def _words(expression: str) -> str:
    try:
        return in_words(expression)
    except BadCron as error:
        return str(error)


def _next_times(schedule: Schedule, now: Instant) -> tuple[datetime, ...]:
    if not schedule.enabled:
        return ()
    try:
        times = cron.read(schedule.expression, schedule.zone)
    except BadCron:
        return ()
    found: list[datetime] = []
    at: Instant | None = schedule.next_at or times.next_after(now)
    while at is not None and len(found) < NEXT_SHOWN:
        found.append(to_datetime(at))
        at = times.next_after(at)
    return tuple(found)


def _own_reasons(
    schedule: Schedule, processes: Sequence[ProcessRecord], now: Instant
) -> list[Reason]:
    name = schedule.name
    if schedule.error is not None:
        text = f"the schedule was disabled: {schedule.error}"
        return [Reason(code="schedule_error", text=text, remedy=f"forge cron set {name} --cron …")]
    if not schedule.enabled:
        text = "the schedule is disabled"
        return [Reason(code="disabled", text=text, remedy=f"forge cron enable {name}")]
    if not processes:
        text = "no worker is running, and only workers fire schedules"
        return [Reason(code="no_scheduler", text=text, remedy="forge worker APP")]
    if schedule.next_at is not None and now - schedule.next_at > _OVERDUE_S * SECOND:
        late_s = (now - schedule.next_at) // SECOND
        text = f"its tick is overdue by {late_s:,} s, and no worker has fired it"
        return [Reason(code="overdue", text=text, remedy="forge doctor")]
    return []


def _kind_reasons(schedule: Schedule, kinds: Mapping[str, str]) -> list[Reason]:
    if schedule.kind in kinds:
        return []
    text = f"no worker has published the kind {schedule.kind!r}: its jobs wait for one"
    remedy = "start a worker whose app registers this kind"
    return [Reason(code="missing_kind", text=text, remedy=remedy)]


def _last_reasons(schedule: Schedule, fires: Sequence[Fire]) -> list[Reason]:
    """What became of the last tick, if its job did not run."""
    if not fires:
        return []
    last, name = fires[0], schedule.name
    if last.outcome is FireOutcome.SKIPPED:
        text = (
            f"the last tick was skipped: job {last.job_id} of an earlier tick had not ended "
            "(overlap policy skip)"
        )
        return [Reason(code="overlap", text=text, remedy=f"forge cron set {name} --overlap allow")]
    if last.outcome is FireOutcome.MISSED or last.missed:
        count = last.missed + (last.outcome is FireOutcome.MISSED)
        text = (
            f"{count:,} tick{'' if count == 1 else 's'} passed while no worker could fire them "
            f"(missed policy {schedule.missed})"
        )
        remedy = None if schedule.missed == Missed.ALL else f"forge cron set {name} --missed all"
        return [Reason(code="missed", text=text, remedy=remedy)]
    return []
