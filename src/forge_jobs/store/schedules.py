"""Cron schedules: the rules of their settings, and the contract for what fires them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct, structs

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.text import storable

from .settings import SCHEDULE, SettingStore, TypedSettings

FIRES_KEPT: Final = 50


class Schedule(CronSpec, frozen=True, kw_only=True):
    """A stored schedule.

    ``next_at`` is the tick that fires next. It is None while the schedule is disabled, and for one
    that was stored without it until a process has computed it. ``declared``: code declares the
    schedule. ``edited``: an operator changed it; what code declares does not overwrite it.
    ``version`` changes with every write.
    """

    enabled: bool = True
    declared: bool = False
    edited: bool = False
    next_at: Instant | None = None
    last_at: Instant | None = None
    error: str | None = None
    version: int = 0
    updated_at: Instant = 0


class FireOutcome(StrEnum):
    """The outcome of a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"
    TRIGGERED = "triggered"


class NewFire(Struct, frozen=True):
    """A tick to fire with its job. ``job`` None: the tick is not fired but recorded as missed.
    ``missed`` counts earlier ticks that are dropped with it."""

    tick: Instant
    job: NewJob | None = None
    missed: int = 0


class Fire(Struct, frozen=True):
    """An entry of a schedule's history. A skipped tick names the job that held its dedupe key."""

    tick: Instant
    at: Instant
    outcome: FireOutcome
    job_id: str | None = None
    missed: int = 0


class DueSchedules(Struct, frozen=True):
    """Schedules that are due now, and the earliest tick of all others."""

    now: Instant
    schedules: Sequence[Schedule]
    next_at: Instant | None = None


class ScheduleStore(Protocol):
    """The contract for ticks: what must be atomic with the jobs that they store."""

    async def due(self, *, limit: int) -> DueSchedules:
        """Enabled schedules whose ``next_at`` has passed or is not set, ordered by it, at most
        ``limit``; and the earliest ``next_at`` of the others. All in store time."""
        ...

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        """Store the jobs of ticks and advance the schedule, in one durable transaction.

        * This is a compare-and-set: it happens only if ``tick`` is the stored ``next_at`` and the
          schedule is enabled. Otherwise another process fired it; nothing happens and the answer is
          None. So each tick fires exactly once, without a leader.
        * A tick whose job has a taken dedupe key is recorded as skipped.
        * ``last_at`` becomes the last tick that was fired or skipped.
        * The history keeps FIRES_KEPT entries.
        """
        ...

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        """Store a job outside the ticks, with an entry in the history; None without that
        schedule."""
        ...

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        """The history of a schedule, newest first."""
        ...


class _OtherVersion(Exception):
    """The stored version is not the expected one."""


class CronSchedules:
    """The cron schedules of a store.

    ``get``, ``all`` and ``delete`` are those of its settings (a deletion takes the history along
    and raises the control version), the others those of ``ScheduleStore``.
    """

    def __init__(self, settings: SettingStore, ticks: ScheduleStore) -> None:
        self._schedules = TypedSettings(settings, SCHEDULE, Schedule)
        self.get = self._schedules.get
        self.all = self._schedules.all
        self.delete = self._schedules.delete
        self.due = ticks.due
        self.fire = ticks.fire
        self.trigger = ticks.trigger
        self.history = ticks.history

    async def put(self, schedule: Schedule, *, expect: int | None = None) -> bool:
        """Store or replace a schedule; whether it was stored. With ``expect`` only if that is the
        stored version; 0 means that there is none. Raises the control version."""
        error = None if schedule.error is None else storable(schedule.error)

        def changed(known: Schedule | None, now: Instant) -> Schedule:
            version = 0 if known is None else known.version
            if expect not in (None, version):
                raise _OtherVersion
            return structs.replace(schedule, error=error, version=version + 1, updated_at=now)

        try:
            await self._schedules.update(schedule.name, changed)
        except _OtherVersion:
            return False
        return True
