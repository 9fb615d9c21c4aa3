"""The contract for limits: what code declares, what operators change, how full a bucket is.

This contract only stores the numbers. ``jobs.exchange`` enforces caps, rates and closed scopes of
queues and tasks. Every transition that makes a job due or ends it enforces limit keys and lanes.
Every change made here raises the control version.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from forge_jobs.core.limits import Declared, Limit
from forge_jobs.core.throttle import Gate


class LimitChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New numbers of a limit. UNSET leaves a number as it is, None removes that bound."""

    concurrency: int | UnsetType | None = UNSET
    rate_per_s: float | UnsetType | None = UNSET
    burst: float | UnsetType = UNSET


class LimitBucket(Struct, frozen=True, kw_only=True):
    """How full a limit, a limit key or a lane is.

    ``taken``: how many jobs run under it; for keys and lanes pending ones count as well.
    ``capacity``: how many may; None means any number. ``first``: the id of the job that the lane
    waits for.
    """

    name: str
    taken: int = 0
    capacity: int | None = None
    first: str | None = None


class Admitted(Struct, frozen=True):
    """What ``admit`` did: how many jobs left their bucket. ``next`` is the ``after`` of the next
    call; None after the last bucket."""

    admitted: int = 0
    next: str | None = None


class LimitStore(Protocol):
    """The contract for limits: bounds on jobs beyond the slots of their queue."""

    async def publish(self, declared: Sequence[Declared]) -> None:
        """Store the limits that code declares. Numbers set by an operator stay. Nothing is written
        when nothing changes. BadOption for a number outside its range."""
        ...

    async def all(self) -> list[Limit]:
        """All limits, by name, with their tokens as of now."""
        ...

    async def change(self, name: str, change: LimitChange) -> Limit:
        """Set numbers of a limit on behalf of an operator; code does not overwrite them. Creates
        the limit if there is none. BadOption for a number outside its range."""
        ...

    async def reset(self, name: str) -> None:
        """Let code set the limit again: the next process that declares it writes its numbers. Until
        then the numbers stay. NotFound for an unknown limit."""
        ...

    async def gates(self) -> dict[str, Gate]:
        """The gates of scopes that were throttled and not reset since, by scope."""
        ...

    async def open_scope(self, scope: str) -> None:
        """Open the gate of a scope: its jobs may be claimed at once. NotFound for a scope that no
        task declares and that was not closed."""
        ...

    async def bucket(self, name: str) -> LimitBucket:
        """How full a limit, limit key or lane is."""
        ...

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        """Admit held jobs whose limit bucket has room, in at most ``limit`` buckets by name, after
        the name ``after``. Repairs buckets that no transition has admitted."""
        ...
