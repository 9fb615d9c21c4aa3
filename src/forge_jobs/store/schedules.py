"""The contract for what is advanced by time: cron schedules and rate buckets."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.token_bucket import Grant, TokenBucket

FIRES_KEPT: Final = 50


class Schedule(CronSpec, frozen=True, kw_only=True):
    """A stored schedule. ``next_at`` is the tick that fires next: None while disabled, and until
    the first look at a schedule that was stored without one.

    ``declared``: some code declares it. ``edited``: an operator changed what the code says, which
    therefore holds no longer. ``version`` changes with every write.
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
    """What became of a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"
    TRIGGERED = "triggered"


class NewFire(Struct, frozen=True):
    """A tick to fire: with its job, or None when it is let go; ``missed`` earlier ones went with
    it."""

    tick: Instant
    job: NewJob | None = None
    missed: int = 0


class Fire(Struct, frozen=True):
    """A tick in a schedule's history. A skipped one names the job that was in its way."""

    tick: Instant
    at: Instant
    outcome: FireOutcome
    job_id: str | None = None
    missed: int = 0


class DueSchedules(Struct, frozen=True):
    """Schedules to look at now, and the earliest tick of all others."""

    now: Instant
    schedules: Sequence[Schedule]
    next_at: Instant | None = None


class ScheduleStore(Protocol):
    """What fires by time and rate."""

    async def put(self, schedule: Schedule, *, expect: int | None = None) -> bool:
        """Store or replace a schedule; raises the control version. With ``expect`` only if the
        stored version is that one, 0 meaning that there is none; whether it was stored."""
        ...

    async def delete(self, name: str) -> bool:
        """Remove a schedule and its history; whether there was one. Raises the control version."""
        ...

    async def get(self, name: str) -> Schedule | None:
        """One schedule."""
        ...

    async def all(self) -> list[Schedule]:
        """All schedules, by name."""
        ...

    async def due(self, *, limit: int) -> DueSchedules:
        """Enabled schedules whose tick has come, or that have none yet, by that tick, at most
        ``limit``; and when the next one comes. Times are the store's."""
        ...

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, new_fires: Sequence[NewFire]
    ) -> list[Fire] | None:
        """Store the jobs of ticks and advance the schedule, in one durable transaction.

        Only if ``tick`` still is the stored ``next_at`` and the schedule is enabled: otherwise
        somebody else was faster, nothing happens, and the answer is None. Exactly one fire per
        tick follows without any leader. A job whose key is taken is a skipped tick. ``last_at``
        becomes the last tick that was fired or skipped. The history keeps FIRES_KEPT entries.
        """
        ...

    async def trigger(self, name: str, job: NewJob) -> Fire | None:
        """Store a job beside the ticks, and an entry in the history; None without that schedule."""
        ...

    async def history(self, name: str, *, limit: int = FIRES_KEPT) -> list[Fire]:
        """The last fires of a schedule, newest first."""
        ...

    async def ensure_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        """The bucket; created full if absent, never overwritten. BadOption for a capacity below 1
        or a negative rate."""
        ...

    async def put_token_bucket(
        self, scope: str, *, capacity: float, refill_per_s: float
    ) -> TokenBucket:
        """Create the bucket full, or change its size and rate keeping min(tokens, capacity).
        BadOption as above."""
        ...

    async def take(self, scope: str, permits: int) -> Grant:
        """Take up to ``permits`` whole permits; NotFound for an unknown scope. Time that runs
        backwards refills nothing."""
        ...

    async def drain(self, scope: str) -> None:
        """Empty the bucket now: the limiter itself said no. NotFound for an unknown scope."""
        ...

    async def buckets(self) -> list[TokenBucket]:
        """All buckets, by scope, as of now."""
        ...
