"""The contract for what is advanced by time: cron schedules and rate buckets."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob


class Schedule(Struct, frozen=True, kw_only=True):
    """A stored schedule. ``next_at`` is the tick that fires next; None while disabled."""

    name: str
    expression: str
    kind: str
    queue: str | None = None
    payload: bytes = b"{}"
    zone: str = "UTC"
    missed: str = "once"
    overlap: str = "skip"
    jitter_s: float = 0.0
    max_attempts: int | None = None
    enabled: bool = True
    next_at: Instant | None = None
    last_at: Instant | None = None
    error: str | None = None
    updated_at: Instant = 0


class Bucket(Struct, frozen=True, kw_only=True):
    """A token bucket: ``tokens`` as of ``at``."""

    scope: str
    capacity: float
    refill_per_s: float
    tokens: float
    at: Instant


class Grant(Struct, frozen=True):
    """``granted`` permits now; with fewer than asked for, ``retry_at`` is when one is there."""

    granted: int
    retry_at: Instant | None = None


class ScheduleStore(Protocol):
    """What fires by time and rate."""

    async def ensure(self, schedule: Schedule) -> Schedule:
        """Store the schedule unless one of that name exists; the stored one either way."""
        ...

    async def put(self, schedule: Schedule) -> None:
        """Store or replace a schedule."""
        ...

    async def delete(self, name: str) -> bool:
        """Remove a schedule; whether there was one."""
        ...

    async def get(self, name: str) -> Schedule | None:
        """One schedule."""
        ...

    async def all(self) -> list[Schedule]:
        """All schedules, by name."""
        ...

    async def fire(
        self, name: str, *, tick: Instant, next_at: Instant | None, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        """Store the jobs of one tick and advance the schedule, in one durable transaction.

        Only if ``tick`` still is the stored ``next_at``: otherwise somebody else fired it, nothing
        happens, and the answer is None. Exactly one fire per tick follows without any leader.
        """
        ...

    async def ensure_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        """The bucket; created full if absent, never overwritten."""
        ...

    async def put_bucket(self, scope: str, *, capacity: float, refill_per_s: float) -> Bucket:
        """Create the bucket full, or change its size and rate keeping min(tokens, capacity)."""
        ...

    async def take(self, scope: str, permits: int) -> Grant:
        """Take up to ``permits`` whole permits; NotFound for an unknown scope. Time that runs
        backwards refills nothing."""
        ...

    async def drain(self, scope: str) -> None:
        """Empty the bucket now: the limiter itself said no. NotFound for an unknown scope."""
        ...

    async def buckets(self) -> list[Bucket]:
        """All buckets, by scope, as of now."""
        ...
