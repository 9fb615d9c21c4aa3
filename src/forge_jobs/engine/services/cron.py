"""Fires schedules: one job per tick of a schedule, however many processes run this service."""

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forge_jobs.core.errors import Invalid, StoreError
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule_ticks import due, first_tick
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.requests.opened_store import OpenedStore
from forge_jobs.engine.requests.published_kinds_cache import PublishedKindsCache
from forge_jobs.engine.requests.routing import Router
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.log import log_facts
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.schedules import Fire, FireOutcome, NewFire, Schedule
from forge_jobs.store.store import Store

_LOG = logging.getLogger("forge_jobs.cron")
_LIMIT = 100
_MAX_SHOTS = 100
_INTERVAL_S = 5.0
_RETRY_S = 1.0
# After the tick, never before it: store time and ours may differ by the length of a call.
_LATE_S = 0.002

Prepare = Callable[[NewJob], NewJob]


def _unchanged(job: NewJob) -> NewJob:
    return job


class CronTickReport(Struct, frozen=True, kw_only=True):
    """What one pass over the schedules did; counts are ticks, except seeded and errors.

    ``skipped``: the job of an earlier tick was still live. ``missed``: dropped by the schedule's
    missed-run policy. ``seeded``: schedules that got their first tick. ``errors``: schedules that
    could not be fired now, or were disabled because what they say cannot be read.

    >>> asyncio.run(cron_tick_once(forge.store)).fired
    0
    """

    fired: int = 0
    skipped: int = 0
    missed: int = 0
    seeded: int = 0
    errors: int = 0
    next_due: Instant | None = None


class CronService:
    """The guard in the store makes it exactly one job per tick, not the leadership.

    ``requests`` makes the jobs of ticks; ``prepare`` applies the hooks to them.
    """

    name = "cron"
    runs_on = RunsOn.LEADER

    def __init__(
        self,
        store: Store,
        *,
        requests: JobRequests,
        entropy: Entropy,
        interval_s: float = _INTERVAL_S,
        prepare: Prepare = _unchanged,
    ) -> None:
        self._store = store
        self._interval_s = interval_s
        self._requests = requests
        self._entropy = entropy
        self._prepare = prepare

    async def tick(self) -> Next:
        """Fire what is due, then sleep until the next tick."""
        cron_pass = _CronPass(self._store, self._requests, self._entropy, self._prepare)
        report = await cron_pass.run()
        # One schedule that cannot be fired is tried again soon; the others keep their times.
        max_wait_s = self._interval_s if cron_pass.error is None else _RETRY_S
        if cron_pass.more and cron_pass.error is None:
            return Next.again()
        if report.next_due is None:
            return Next.after(max_wait_s)
        wait_s = (report.next_due - cron_pass.now) / SECOND + _LATE_S
        return Next.exactly(min(max(wait_s, 0.0), max_wait_s))


async def cron_tick_once(
    storage: Store, *, router: Router | None = None, entropy: Entropy = SYSTEM_ENTROPY
) -> CronTickReport:
    """Fire everything that is due by the store's clock, once.

    A schedule without a queue goes where workers have published its kind, else where ``router``
    says. Raises what the store raises if nothing could be done.

    >>> asyncio.run(cron_tick_once(open_storage("memory://"))).fired
    0
    """
    total = CronTickReport()
    kinds = PublishedKindsCache(OpenedStore(storage), SYSTEM_CLOCK)
    requests = JobRequests(HandlerRegistry(), kinds, router=router)
    while True:
        cron_pass = _CronPass(storage, requests, entropy)
        step = await cron_pass.run()
        total = CronTickReport(
            fired=total.fired + step.fired,
            skipped=total.skipped + step.skipped,
            missed=total.missed + step.missed,
            seeded=total.seeded + step.seeded,
            errors=total.errors + step.errors,
            next_due=step.next_due,
        )
        if cron_pass.error is not None and not (total.fired or total.skipped or total.seeded):
            raise cron_pass.error
        if cron_pass.error is not None or not cron_pass.more:
            return total


class _CronPass:
    """One pass over the schedules that are due."""

    def __init__(
        self,
        store: Store,
        requests: JobRequests,
        entropy: Entropy,
        prepare: Prepare = _unchanged,
    ) -> None:
        self._store = store
        self._requests = requests
        self._entropy = entropy
        self._prepare = prepare
        self._counts = dict.fromkeys(FireOutcome, 0)
        self._missed = self._seeded = self._errors = 0
        self._next_due: Instant | None = None
        self._stale = False
        self.now: Instant = 0
        self.more = False
        self.error: Exception | None = None

    async def run(self) -> CronTickReport:
        found = await self._store.schedules.due(limit=_LIMIT)
        if found.schedules:
            await self._requests.refresh()
            # Read again, so that only the fire itself comes between this time and the fire: a slow
            # reply must not make a tick look less late than it is.
            found = await self._store.schedules.due(limit=_LIMIT)
        self.now, self._next_due = found.now, found.next_at
        self.more = len(found.schedules) == _LIMIT
        for schedule in found.schedules:
            if self._stale:
                break
            try:
                await self._fire(schedule)
            except Invalid as error:
                await self._disable(schedule, str(error))
            except Exception as error:
                # The tick stays stored and a later pass fires it; continue with the others.
                self._record_failure(schedule, error)
                await self._refresh_time()
        return CronTickReport(
            fired=self._counts[FireOutcome.FIRED],
            skipped=self._counts[FireOutcome.SKIPPED],
            missed=self._missed,
            seeded=self._seeded,
            errors=self._errors,
            next_due=self._next_due,
        )

    async def _fire(self, schedule: Schedule) -> None:
        if schedule.next_at is None:
            await self._seed(schedule)
            return
        due_ticks = due(schedule, schedule.next_at, self.now)
        ticks, next_at = due_ticks.ticks[:_MAX_SHOTS], due_ticks.next_at
        if len(due_ticks.ticks) > _MAX_SHOTS:
            next_at, self.more = due_ticks.ticks[_MAX_SHOTS], True
        if ticks:
            jobs = [self._job(schedule, tick) for tick in ticks]
            try:
                new_fires = [NewFire(tick, self._prepare(job)) for tick, job in jobs]
            except Exception as error:
                # A hook refused the job. The schedule is not at fault: its tick stays stored.
                self._record_failure(schedule, error)
                return
            new_fires[0] = replace(new_fires[0], missed=due_ticks.missed)
        else:
            new_fires = [NewFire(due_ticks.latest, None, due_ticks.missed - 1)]
        fires = await self._store.schedules.fire(
            schedule.name, tick=schedule.next_at, next_at=next_at, new_fires=new_fires
        )
        if fires is None:
            # Another process fired it, at an unknown time: read again what is late.
            self._stale = self.more = True
        else:
            self.now = fires[-1].at
            self._count(schedule, fires, due_ticks.missed)
        if next_at is None:
            self.more = True
        else:
            self._next_due = min(self._next_due or next_at, next_at)

    def _job(self, schedule: Schedule, tick: Instant) -> tuple[Instant, NewJob]:
        run_at = tick + int(schedule.jitter_s * self._entropy.roll() * SECOND)
        # A due job is ordered by now, however late the tick is.
        later = run_at if run_at > self.now else None
        return tick, self._requests.scheduled_job(schedule, tick=tick, run_at=later)

    async def _seed(self, schedule: Schedule) -> None:
        next_at = first_tick(schedule, self.now, last_at=schedule.last_at)
        if next_at is None:
            await self._disable(schedule, "its expression names no further moment")
            return
        seeded = replace(schedule, next_at=next_at)
        if await self._store.schedules.put(seeded, expect=schedule.version):
            self._seeded += 1
        self._next_due = min(self._next_due or next_at, next_at)

    def _record_failure(self, schedule: Schedule, error: Exception) -> None:
        self._errors += 1
        self.error = error
        log_facts(
            _LOG, logging.WARNING, "schedule could not be fired",
            schedule=schedule.name, error=repr(error), retry_in=_RETRY_S,
        )  # fmt: skip

    async def _disable(self, schedule: Schedule, message: str) -> None:
        stopped = replace(schedule, enabled=False, next_at=None, error=message)
        try:
            done = await self._store.schedules.put(stopped, expect=schedule.version)
        except StoreError as error:
            self._record_failure(schedule, error)
            return
        self._errors += 1
        if done:
            log_facts(
                _LOG, logging.ERROR, "schedule disabled: it cannot be read",
                schedule=schedule.name, error=message,
            )  # fmt: skip

    async def _refresh_time(self) -> None:
        """Read the store time again after a failed call, which may have taken any time."""
        try:
            self.now = (await self._store.schedules.due(limit=1)).now
        except StoreError:
            self._stale = True

    def _count(self, schedule: Schedule, fires: Sequence[Fire], missed: int) -> None:
        for fire in fires:
            self._counts[fire.outcome] += 1
        self._missed += missed
        if missed:
            log_facts(
                _LOG, logging.WARNING, "schedule missed ticks",
                schedule=schedule.name, missed=missed, policy=schedule.missed,
            )  # fmt: skip
